"""The controller of an app whose operations wait in their second step until the test lets them continue.

`paced_app.py FOLDER run …`, with the SDK of any release. Each step that begins adds a line to FOLDER/ran: the operation
kind, the step and the folder of the SDK."""

import asyncio
import sys
from pathlib import Path

import gpuaas_sdk
import msgspec
from gpuaas_contract import lifecycles
from gpuaas_sdk.controller import App, Operation, RunnerSettings

MANIFEST = {
    "slug": "paced",
    "display_name": "Paced",
    "version": "1.0.0",
    "runtime_backend": "paced",
    "operating_modes": ["tenant_dedicated"],
    "control_plane_scopes": ["project"],
    "roles": [{"component_key": "head", "min": 1, "max": 1}],
    "topologies": {"solo": {"head": "allocation"}},
    "deploy_form": {"type": "object", "properties": {"allocation": {"type": "string"}}},
    "instance_operations": ["stop"],
}
SETTINGS = RunnerSettings(lease_s=5, claim_wait_s=5, refused_pause_s=0.2)
WAYS: dict[str, tuple[lifecycles.MemberStatus, ...]] = {
    "deploy": ("provisioning", "joining", "ready"),
    "stop": ("drained",),
    "decommission": ("removing", "removed"),
}


def build(folder: Path) -> App:
    manifest = folder / "manifest.json"
    manifest.write_bytes(msgspec.json.encode(MANIFEST))
    app = App("paced", manifest=manifest, settings=SETTINGS)

    @app.operation("deploy")
    @app.operation("stop")
    @app.operation("decommission")
    async def carry_out(op: Operation) -> None:
        async def begin(step: str) -> None:
            with (folder / "ran").open("a") as ran:
                ran.write(f"{op.kind} {step} {Path(gpuaas_sdk.__file__).parent}\n")

        async def first() -> None:
            await begin("first")

        async def second() -> None:
            await begin("second")
            while not (folder / f"continue-{op.kind}").exists():  # noqa: ASYNC110 - another process makes the file
                await asyncio.sleep(0.05)

        await op.step("first", first)
        await op.step("second", second)
        for member in op.to_do:
            for status in WAYS[op.kind]:
                await op.report(member, status=status)

    return app


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1])).main(sys.argv[2:]))
