"""The controller of etcd. The kit's `quorum` has the operations; here is what only etcd needs, and the actions."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuaas_sdk.certificates import Authority
from gpuaas_sdk.controller import AccessBundle, App, AppCommand, Check, Command, Connection, Member, Operation, quorum
from gpuaas_sdk.failures import NeedsOperator, Refused
from gpuaas_sdk.installs.bundles import command as bundles
from gpuaas_sdk.machine import Machine

from gpuaas_app_etcd import checks, plan
from gpuaas_app_etcd.workload import etcd
from gpuaas_app_etcd.workload.footprint import DATA, ETCD, ROLE, SNAPSHOTS

YEAR_S = 365 * 86_400


class EtcdPeers(quorum.Peers):
    """Members have the names of their allocations, which are known before a machine answers."""

    stop, restart = staticmethod(etcd.stop), staticmethod(etcd.restart)
    healthy, version = staticmethod(etcd.healthy), staticmethod(etcd.version)
    refusal = staticmethod(plan.version_refusal)

    async def found(self, op: Operation, member: Member, machine: Machine) -> None:
        every = {plan.url(other.address): other.allocation_id for other in op.members}
        await self._begin(op, member, machine, plan.initial_cluster((), every), "new")

    async def enter(self, op: Operation, member: Member, machine: Machine, serving: Member) -> None:
        name, address = member.allocation_id, member.address
        server = await op.machine(serving)
        if not await self._has_authority(op, server):
            fix = f"gpuaas stop {op.instance.name}; gpuaas start {op.instance.name}"
            raise NeedsOperator("the TLS secret of the instance has expired; a new member would not be trusted", fix)
        mine = plan.find(peers := await etcd.peers(server), name, address)
        stale = plan.stale(peers, mine, has_data=await machine.exists(f"{DATA}/member"))
        for peer in stale:
            await etcd.control(server, "member", "remove", f"{peer.id:x}")
        if mine is None or mine in stale:
            await etcd.clear(machine)
            await etcd.control(server, "member", "add", name, "--learner", f"--peer-urls={plan.url(address)}")
        cluster = plan.initial_cluster(await etcd.peers(server), {plan.url(address): name})
        await self._begin(op, member, machine, cluster, "existing")

    async def admit(self, op: Operation, member: Member, serving: Member) -> None:
        server = await op.machine(serving)
        mine = plan.find(await etcd.peers(server), member.allocation_id, member.address)
        if mine is not None and mine.learner:
            await etcd.control(server, "member", "promote", f"{mine.id:x}")

    async def retire(self, op: Operation, member: Member, serving: Member) -> None:
        server = await op.machine(serving)
        mine = plan.find(await etcd.peers(server), member.allocation_id, member.address)
        if mine is not None:
            await etcd.control(server, "member", "remove", f"{mine.id:x}")

    async def start(self, op: Operation, member: Member, machine: Machine) -> None:
        """All members are stopped, so this is the moment at which they can change to a new secret."""
        if not await self._has_authority(op, machine):
            await etcd.put_tls(machine, await self._authority(op), member.allocation_id, member.address)
        await etcd.start(machine)

    def conditions(self, unwell: Mapping[str, str]) -> dict[str, Check]:
        return {"NoAlarm": checks.no_alarm(unwell)}

    def access(self, op: Operation) -> AccessBundle:
        urls = [plan.url(member.address, plan.CLIENT_PORT) for member in op.members]
        line = " ".join(("sudo", *etcd.CTL, f"--endpoints={','.join(urls)}", "member", "list"))
        note = "Clients elsewhere need the three files of `paths`, from any member; only root reads the key."
        return AccessBundle(
            endpoints=[Connection(name=f"member {at}", url=url) for at, url in enumerate(urls, 1)],
            paths={"CA": etcd.CA, "certificate": etcd.CERTIFICATE, "key": etcd.KEY, "snapshots": SNAPSHOTS},
            commands=[Command(title="List the members", line=line, allocation_id=op.members[0].allocation_id)],
            notes=[f"`gpuaas ssh {op.members[0].node_name} --root` gives the shell for the command. {note}"],
        )

    async def _authority(self, op: Operation) -> Authority:
        return Authority(await op.secret("cluster_bootstrap", "tls", ttl_s=YEAR_S), f"etcd {op.instance.instance_id}")

    async def _begin(self, op: Operation, member: Member, machine: Machine, cluster: str, state: str) -> None:
        name, address = member.allocation_id, member.address
        await etcd.put_tls(machine, await self._authority(op), name, address)
        await etcd.configure(machine, name, address, cluster, op.instance.instance_id, state)
        await etcd.start(machine)

    async def _has_authority(self, op: Operation, machine: Machine) -> bool:
        return await machine.get(etcd.CA) == (await self._authority(op)).certificate.encode()


PEERS = EtcdPeers(ETCD, ROLE)
_BUNDLE = AppCommand("make a bundle of packages", lambda argv: bundles.main(argv, app.manifest, ETCD))
_MANIFEST = Path(__file__).with_name("manifest.yaml")
app: App = App("etcd", manifest=_MANIFEST, packages=ETCD.packages, commands={"bundle": _BUNDLE})
quorum.register(app, PEERS)


@app.action("snapshot.save")
async def save(op: Operation) -> dict[str, Any]:
    """Save one file. A controller that crashed may have chosen another machine, so the others keep none."""
    name, member = f"{op.id}.db", await quorum.serving_member(op, PEERS)
    row = await op.on(member, lambda machine: etcd.save(machine, name))
    for other in quorum.others(op, member):
        if await op.answers(other, patience_s=PEERS.settings.answer_s):
            await op.on(other, lambda machine: etcd.discard(machine, name))
    return {"rows": [row]}


@app.action("snapshot.restore")
async def restore(op: Operation) -> dict[str, Any]:
    """Start a new cluster from the one machine that has the file; the others join it without data, as new members."""
    snapshot, token = op.inputs["snapshot"], op.instance.instance_id
    holders = [m for m in op.members if await op.on(m, lambda machine: machine.exists(f"{SNAPSHOTS}/{snapshot}"))]
    if not holders:
        raise Refused(f"no member has the snapshot {snapshot}", fix="name one that snapshot.save returned")
    first, name, address = holders[0], holders[0].allocation_id, holders[0].address
    await quorum.step(op, first, "unpack", lambda machine: etcd.unpack(machine, snapshot, name, address, token))
    for member in quorum.others(op, first):
        await quorum.step(op, member, "clear", etcd.clear)
    await quorum.step(op, first, "restore", lambda machine: etcd.restore(machine, name, address, token))
    await quorum.step(op, first, "start", etcd.start)
    for member in quorum.others(op, first):
        await quorum.join(op, PEERS, member, member)
    return {"rows": [await op.on(first, lambda machine: etcd.save(machine, snapshot))]}


def main() -> None:
    sys.exit(app.main())
