"""The loop of nodes: silent nodes become lost, tasks without a result expire.

It looks with a reader and writes only when something is due.
"""

from gpuaas_platform import call
from gpuaas_platform.kit import db, retention
from gpuaas_platform.nodes import presence
from gpuaas_platform.nodes.tasks import service as tasks
from gpuaas_platform.nodes.tasks import store as tasks_store

TOPIC = "nodes"
RETAINED = (
    retention.expired(
        "nodes.tasks", "node_tasks", "task_id", lambda settings: settings.node_tasks_kept_s, tasks_store.ENDED
    ),
    # Expiry has no index here: only valid tokens are left after a sweep, and those are few.
    retention.expired("nodes.enrolment_tokens", "enrolment_tokens", "digest", lambda _: 0),
)


async def sweep(site: call.Site) -> None:
    origin, reader = call.system_origin(site.clock()), site.database.reader
    presence_is_due = await presence.is_due(reader, site, origin.now)
    tasks_are_due = await tasks.is_due(reader, origin.now)

    async def use_case(tx: db.Tx) -> None:
        if presence_is_due:
            await presence.sweep(tx, site, origin)
        if tasks_are_due:
            await tasks.sweep(tx, site, origin)

    if presence_is_due or tasks_are_due:
        await site.database.write(use_case)
