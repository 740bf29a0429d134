"""Receive heartbeats of nodes, and decide which nodes are lost.

A node is lost only if the platform was able to receive its heartbeats. So the sweep stores since when heartbeats could
be recorded without interruption. If the store refuses writes, this fails too and counts as an interruption. After an
interruption of all processes or of the store, every node gets the full time again to send a heartbeat.
"""

import datetime
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from gpuaas_contract import errors, node
from gpuaas_contract.paths import Path

from gpuaas_platform.call import Call, Origin, Site
from gpuaas_platform.kit import batches, clock, db, peers
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.nodes import rules, service, store


class Repeated(NamedTuple):
    """A heartbeat that may repeat the last report of its node."""

    node_id: str
    report: str
    now: datetime.datetime


async def receive(call: Call[Path, node.TaskQuery], body: node.NodeStatusReport) -> None:
    """Record a heartbeat. Nearly all repeat the last report of their node; those of many nodes are written together."""
    site, report = call.site, _digest(body, call.peer)
    if not call.dry_run and not body.trial:
        repeated = Repeated(call.caller.actor_id, report, call.now)
        if await site.batches.ask(site.database, _note_repeated, repeated, batches.WRITE_S):
            return
    await site.database.write(lambda tx: _record(tx, call, body, report))


async def _note_repeated(database: db.Database, heartbeats: Sequence[Repeated]) -> list[bool]:
    reports = {heartbeat.node_id: heartbeat.report for heartbeat in heartbeats}
    newest = max(heartbeat.now for heartbeat in heartbeats)
    noted = await database.write(lambda tx: store.note_repeated(tx, reports, newest))
    return [heartbeat.node_id in noted and reports[heartbeat.node_id] == heartbeat.report for heartbeat in heartbeats]


async def _record(tx: db.Tx, call: Call[Path, node.TaskQuery], body: node.NodeStatusReport, report: str) -> None:
    before = await store.NODES.get(tx, call.caller.actor_id)
    if before is None:
        raise errors.NotFound
    after = rules.reported(before, body, rules.address(peers.remote(call.peer), body.facts.addresses, before.address))
    seen = msgspec.structs.replace(after, last_seen_at=call.now)
    await store.save(tx, before, seen, "" if body.trial else report)
    await service.react_to_move(tx, call, before, after)
    changes = rules.changes(before, after)
    if changes:
        await service.announce(tx, call.origin, after, changes)


def _digest(report: node.NodeStatusReport, peer: str) -> str:
    return hashlib.blake2b(msgspec.json.encode((report, peer)), digest_size=16).hexdigest()


async def note_host_key(tx: db.Tx, node_id: str, result: dict[str, object]) -> None:
    """Store the SSH host key from a task result. Some machines get their host key only after they have enrolled."""
    host_key = result.get("ssh_host_public_key")
    present = await store.NODES.get(tx, node_id)
    if isinstance(host_key, str) and host_key and present is not None and present.ssh_host_public_key != host_key:
        await store.save(tx, present, msgspec.structs.replace(present, ssh_host_public_key=host_key))


async def is_due(reader: db.Reader, site: Site, now: datetime.datetime) -> bool:
    """Return whether `sweep` has something to write: the record of presence is too old, or a node is lost."""
    if not await store.is_any_enrolled(reader):
        return False
    at = clock.micros(now)
    if _since_to_note(await store.presence(reader), at, site.settings) is not None:
        return True
    is_judged = await received_for_s(reader, site, now) >= site.settings.node_lost_after_s
    return is_judged and await store.is_any_silent(reader, _silent_since(site.settings, now))


async def sweep(tx: db.Tx, site: Site, origin: Origin) -> None:
    """Record that heartbeats can be received, and mark nodes as lost that sent none for too long.

    The age of a heartbeat is measured from when the platform received it: a node's clock can be wrong."""
    at = clock.micros(origin.now)
    since = _since_to_note(await store.presence(tx), at, site.settings)
    if since is not None:
        await store.set_presence(tx, since, at)
    if await received_for_s(tx, site, origin.now) < site.settings.node_lost_after_s:
        return
    for silent in await store.silent(tx, _silent_since(site.settings, origin.now)):
        lost = msgspec.structs.replace(silent, status="lost")
        await store.save(tx, silent, lost)
        await service.announce(tx, origin, lost, f"no heartbeat for {site.settings.node_lost_after_s:g} s")


async def received_for_s(reader: db.Reader, site: Site, now: datetime.datetime) -> float:
    """Return for how many seconds heartbeats could be received without interruption; at most the age of this process.

    So a process that has just started marks no node as lost; processes that have run longer do."""
    noted, at = await store.presence(reader), clock.micros(now)
    if noted is None or _seconds(noted[1], at) > _pause_s_max(site.settings):
        return 0.0
    return _seconds(max(noted[0], clock.micros(site.opened_at)), at)


def _since_to_note(noted: tuple[int, int] | None, now: int, settings: Settings) -> int | None:
    """Return the start of the time without interruption, if it must be written now; None if the record is recent."""
    pause_s_max = _pause_s_max(settings)
    if noted is None or _seconds(noted[1], now) > pause_s_max:
        return now
    return noted[0] if _seconds(noted[1], now) > pause_s_max / 2 else None


def _pause_s_max(settings: Settings) -> float:
    return settings.heartbeat_interval_s + 2 * settings.sweep_interval_s


def _silent_since(settings: Settings, now: datetime.datetime) -> int:
    return clock.micros(now - datetime.timedelta(seconds=settings.node_lost_after_s))


def _seconds(since: int, until: int) -> float:
    return (until - since) / 1_000_000
