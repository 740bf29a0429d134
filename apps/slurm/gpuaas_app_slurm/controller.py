"""The command `gpuaas-slurm`: register a handler for each operation of the manifest, and run the app."""

import sys
from pathlib import Path

from gpuaas_sdk.controller import App

from gpuaas_app_slurm import back_out, bring_up, health, previews, repair, roles, take_down
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import packages

DEFAULT_SETTINGS = Settings()


def build(settings: Settings = DEFAULT_SETTINGS) -> App:
    """Return the app; every handler gets the settings."""
    app = App(
        "slurm",
        manifest=Path(__file__).with_name("manifest.yaml"),
        packages=packages.wanted_for(tuple(packages.BY_ROLE)),
    )
    app.operation("deploy")(lambda op: bring_up.deploy(op, settings))
    app.operation("add", role=roles.WORKER)(lambda op: bring_up.add(op, settings))
    app.operation("drain", role=roles.WORKER)(lambda op: take_down.drain(op, settings))
    app.operation("resume", role=roles.WORKER)(lambda op: take_down.resume(op, settings))
    app.operation("remove", role=roles.WORKER)(lambda op: take_down.remove(op, settings))
    app.operation("add", role=roles.LOGIN)(lambda op: bring_up.add(op, settings))
    app.operation("remove", role=roles.LOGIN)(lambda op: take_down.remove(op, settings))
    app.operation("decommission")(lambda op: take_down.decommission(op, settings))
    app.operation("repair", role=roles.CONTROLLER)(lambda op: repair.controller(op, settings))
    for role in (roles.WORKER, roles.LOGIN):
        app.operation("repair", role=role)(lambda op: repair.node(op, settings))
    app.health(every_s=settings.health_every_s)(lambda cluster: health.look(cluster, settings))
    app.undo("deploy")(lambda op: back_out.undo_deploy(op, settings))
    app.undo("add", role=roles.WORKER)(lambda op: back_out.undo_add(op, settings))
    app.undo("drain", role=roles.WORKER)(lambda op: back_out.undo_drain(op, settings))
    app.undo("resume", role=roles.WORKER)(lambda op: back_out.undo_resume(op, settings))
    app.undo("remove", role=roles.WORKER)(lambda op: back_out.undo_remove(op, settings))
    app.preview("drain", role=roles.WORKER)(previews.drain)
    app.preview("remove", role=roles.WORKER)(previews.remove)
    app.preview("decommission")(previews.decommission)
    return app


app = build()


def main() -> None:
    sys.exit(app.main())
