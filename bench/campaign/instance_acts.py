"""What people request for the whole cluster: another version and the way back, other settings, stop, start, restart."""

import functools
from dataclasses import dataclass
from typing import Any

from gpuaas_contract import instances
from gpuaas_contract.instances import ChangeInstance, ReconfigureInstance, UpgradeInstance
from gpuaas_contract.operations import Operation

from bench.campaign.acts import Acts, Request, chosen
from bench.campaign.cluster import Cluster
from bench.campaign.jobs import Return

KINDS = {"stop": instances.STOP, "start": instances.START, "restart": instances.RESTART}
REASON = "the campaign"
SETTINGS: tuple[dict[str, Any] | None, ...] = (
    {"default_time": "02:00:00"},
    {"default_time": None, "max_time": "3-00:00:00"},
    {"partitions": [{"name": "short", "default_time": "00:10:00", "max_time": "01:00:00", "priority_tier": 10}]},
    {"partitions": []},
    {"priority": {"fairshare": 1000, "age": 50000}},
    {"extra_settings": {"MessageTimeout": 30, "SchedulerParameters": "bf_continue"}},
    {"extra_settings": {}},
    None,
)
"""Inputs to change; None returns to those before."""


@dataclass
class InstanceActs:
    cluster: Cluster
    acts: Acts

    async def change(self, kind: str, pick: float) -> None:
        """Request what the kind names: `version` is an upgrade, or a rollback if there was one before."""
        if kind == "version":
            await self.acts.request(self._version)
        elif kind == "reconfigure":
            await self.acts.request(functools.partial(self._reconfigure, pick))
        else:
            await self.acts.request(functools.partial(self._change, kind))

    async def _change(self, kind: str) -> Request | None:
        if (await self.cluster.instance()).baseline != ("stopped" if kind == "start" else "up"):
            return None
        return Request(kind, lambda: self.cluster.change(KINDS[kind], ChangeInstance(reason=REASON)))

    async def _version(self) -> Request | None:
        instance, wanted = await self.cluster.instance(), self.cluster.second_version
        if instance.app_version == wanted:
            return Request(f"rollback to {instance.previous_version}", self._rollback)
        body = UpgradeInstance(version=wanted, reason=REASON)
        return Request(f"upgrade to {wanted}", lambda: self.cluster.change(instances.UPGRADE, body))

    async def _rollback(self) -> Operation:
        """Ask what the rollback loses, then request it: no person requests one without that."""
        body = ChangeInstance(reason=REASON)
        await self.cluster.change(instances.ROLLBACK, body, dry_run=True)
        return await self.cluster.change(instances.ROLLBACK, body)

    async def _reconfigure(self, pick: float) -> Request | None:
        instance = await self.cluster.instance()
        inputs = chosen([each for each in SETTINGS if changes(instance, each)], pick)
        if inputs is None:
            body = ReconfigureInstance(previous=True, reason=REASON)
        else:
            body = ReconfigureInstance(inputs=inputs, reason=REASON)
        what = "reconfigure to the inputs before" if inputs is None else f"reconfigure {', '.join(inputs)}"
        return Request(what, lambda: self.cluster.change(instances.RECONFIGURE, body))


def changes(instance: instances.Instance, setting: dict[str, Any] | None) -> bool:
    """Return whether the instance has other inputs after this setting. Pure."""
    if setting is None:
        return bool(instance.inputs_before) and instance.inputs_before != instance.inputs
    after = {**instance.inputs, **setting}
    return {name: value for name, value in after.items() if value is not None} != instance.inputs


def returns(done: list[Operation], now_s: float) -> list[Return]:
    """Return every time that the cluster had the state of an earlier moment after it. Pure."""
    made, state_of_s = [], 0.0
    for item in sorted(done, key=lambda item: item.created_at):
        created_s = item.created_at.timestamp()
        ended_s = item.ended_at.timestamp() if item.ended_at else now_s
        if item.kind == "upgrade":
            state_of_s = created_s
            if any(taken.name in ("cancel", "compensate") for taken in item.exits_taken):
                made.append(Return(created_s, created_s, ended_s))
        elif item.kind == "rollback":
            made.append(Return(state_of_s, created_s, ended_s))
    return made
