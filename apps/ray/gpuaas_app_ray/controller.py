"""The command `gpuaas-ray`. The kit has the handlers of the operations; Ray answers their questions here."""

import sys
from collections.abc import Sequence
from pathlib import Path

from gpuaas_sdk.controller import AccessBundle, App, AppCommand, Check, Connection, Member, Operation, cluster, members
from gpuaas_sdk.installs import wheels
from gpuaas_sdk.installs.bundles import wheels as bundles
from gpuaas_sdk.machine import Machine

from gpuaas_app_ray import checks, jobs, plan
from gpuaas_app_ray.workload import ray


class Ray(cluster.Software):
    """Ray on the machines of an instance."""

    footprint, head, source = ray.RAY, plan.HEAD, "the names of Ray's processes on the machine"
    health = {plan.HEAD: "HeadAnswers", plan.WORKER: "WorkersAlive"}
    ends = "The head ends or restarts: all jobs, tasks and actors end, and job.list is empty afterwards."

    async def install(self, op: Operation, member: Member, machine: Machine) -> None:
        head, role = cluster.head(op, plan.HEAD), member.component_key
        await members.take_over(op, member, machine, ray.RAY)
        # The platform's copy of the token expires, so members keep it.
        kept = await cluster.kept(op, plan.HEAD, ray.TOKEN)
        token = kept.decode() if kept else await op.secret("role_join", "token")
        facts = [int(word) for word in (await machine.script(ray.FACTS)).stdout.split()]
        options = plan.start_options(role, member.address, head.address, op.inputs_after, facts)
        path = await op.place(wheels.artifact("ray"), member)
        await ray.install(machine, op.instance.instance_id, role, path, options, token)

    async def start(self, member: Member, machine: Machine) -> None:
        await ray.start(machine, await self._look(member, machine))

    async def close(self, member: Member, machine: Machine) -> None:
        if member.component_key == plan.WORKER:
            await ray.close(machine)

    async def stop(self, member: Member, machine: Machine) -> None:
        await ray.stop(machine)

    async def serves(self, member: Member, machine: Machine) -> Check:
        return checks.serves(await self._look(member, machine), machine.hostname)

    async def idle(self, member: Member, machine: Machine) -> Check:
        if member.component_key == plan.HEAD:
            return await super().idle(member, machine)
        return checks.has_left(await self._look(member, machine), machine.hostname)

    async def work(self, member: Member, machine: Machine) -> Sequence[str]:
        return (await self._look(member, machine)).work

    async def version(self, member: Member, machine: Machine) -> str:
        return (await machine.run(f"{ray.ENVIRONMENT}/bin/ray", "--version")).stdout.split()[-1]

    def access(self, op: Operation) -> AccessBundle:
        return AccessBundle(
            endpoints=[Connection(name="dashboard", url=ray.DASHBOARD)],
            paths={"logs": f"{ray.DATA}/tmp/session_latest/logs", "token": ray.TOKEN},
            notes=[
                f"People submit jobs with: gpuaas action run {op.instance.name} job.submit",
                f"The dashboard answers only on {cluster.head(op, plan.HEAD).node_name} itself, and needs the token.",
            ],
        )

    async def _look(self, member: Member, machine: Machine) -> checks.View:
        return await ray.look(machine, member.component_key, member.address)


MAKE = AppCommand("make a file of Ray's wheels", lambda argv: bundles.main(argv, app.manifest, "ray[default]"))
app: App = App("ray", manifest=Path(__file__).with_name("manifest.yaml"), commands={"bundle": MAKE})
cluster.register(app, Ray())
app.action("job.submit")(jobs.submit)
app.action("job.list")(jobs.listed)
app.action("job.logs")(jobs.logs)
app.action("job.stop")(jobs.stop)
app.action("demand.read")(jobs.demand)


def main() -> None:
    sys.exit(app.main())
