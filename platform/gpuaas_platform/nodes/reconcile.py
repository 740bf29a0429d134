"""The loop of nodes: it marks nodes without heartbeats as lost, and ends tasks without a result as expired.

It checks with a reader first and opens a write transaction only if there is something to write.
"""

from gpuaas_platform import call
from gpuaas_platform.kit import db
from gpuaas_platform.kit.retention import Retained
from gpuaas_platform.nodes import presence, store
from gpuaas_platform.nodes.tasks import service as tasks
from gpuaas_platform.nodes.tasks import store as tasks_store

TOPIC = "nodes"
RETAINED = (
    Retained("nodes.tasks", lambda settings: settings.node_tasks_kept_s, tasks_store.is_old, tasks_store.forget),
    Retained("nodes.enrolment_tokens", lambda _: 0, store.is_old_token, store.forget_tokens),
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
