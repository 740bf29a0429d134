"""The command `gpuaas-slurm`: register a handler for each operation of the manifest, and run the app."""

import sys
from pathlib import Path

from gpuaas_sdk.controller import App, AppCommand
from gpuaas_sdk.installs.bundles import command as bundles

from gpuaas_app_slurm import (
    accounting_actions,
    auth_actions,
    back_out,
    bring_up,
    controller_move,
    health,
    job_actions,
    move_checks,
    node_actions,
    previews,
    reconfigure,
    refusals,
    repair,
    replace,
    roles,
    rollback,
    stop_start,
    take_down,
    token_actions,
    upgrade,
    user_actions,
)
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import home
from gpuaas_app_slurm.workload.footprint import CONTAINER_PACKAGES, REST_PACKAGES, SLURM

DEFAULT_SETTINGS = Settings()
OPTIONS = (*home.CLIENT_PACKAGES, *home.SERVER_PACKAGES, *REST_PACKAGES, *CONTAINER_PACKAGES)
_BUNDLE = "make a bundle of packages for machines without a package source"


def build(settings: Settings = DEFAULT_SETTINGS) -> App:
    """Return the app; every handler gets the settings."""
    app = App(
        "slurm",
        manifest=Path(__file__).with_name("manifest.yaml"),
        packages=(*SLURM.packages, *REST_PACKAGES, *CONTAINER_PACKAGES),
        commands={"bundle": AppCommand(_BUNDLE, lambda argv: bundles.main(argv, app.manifest, SLURM, OPTIONS))},
    )
    app.operation("deploy")(lambda op: bring_up.deploy(op, settings))
    app.operation("add", role=roles.WORKER)(lambda op: bring_up.add(op, settings))
    app.operation("drain", role=roles.WORKER)(lambda op: take_down.drain(op, settings))
    app.operation("resume", role=roles.WORKER)(lambda op: take_down.resume(op, settings))
    app.operation("remove", role=roles.WORKER)(lambda op: take_down.remove(op, settings))
    app.operation("add", role=roles.LOGIN)(lambda op: bring_up.add(op, settings))
    app.operation("remove", role=roles.LOGIN)(lambda op: take_down.remove(op, settings))
    app.operation("decommission")(lambda op: take_down.decommission(op, settings))
    app.operation("reconfigure")(lambda op: reconfigure.reconfigure(op, settings))
    app.operation("repair", role=roles.CONTROLLER)(lambda op: repair.controller(op, settings))
    for role in (roles.WORKER, roles.LOGIN):
        app.operation("repair", role=role)(lambda op: repair.node(op, settings))
    app.health(every_s=settings.health_every_s)(lambda cluster: health.look(cluster, settings))
    app.undo("deploy")(lambda op: back_out.undo_deploy(op, settings))
    for role in (roles.WORKER, roles.LOGIN):
        app.undo("add", role=role)(lambda op: back_out.undo_add(op, settings))
        app.undo("remove", role=role)(lambda op: back_out.undo_remove(op, settings))
    app.undo("reconfigure")(lambda op: reconfigure.undo(op, settings))
    app.undo("drain", role=roles.WORKER)(lambda op: back_out.undo_drain(op, settings))
    app.undo("resume", role=roles.WORKER)(lambda op: back_out.undo_resume(op, settings))
    app.preview("drain", role=roles.WORKER)(refusals.announced(previews.drain, refusals.drain, settings))
    for role in (roles.WORKER, roles.LOGIN):
        app.preview("remove", role=role)(refusals.announced(previews.remove, refusals.leave, settings))
    app.preview("decommission")(refusals.announced(previews.decommission, refusals.decommission, settings))
    app.action("users.list")(user_actions.list_users)
    app.action("users.sync")(lambda op: user_actions.sync(op, settings))
    app.action("users.add")(lambda op: user_actions.add(op, settings))
    app.action("users.remove")(lambda op: user_actions.remove(op, settings))
    app.action("users.limits")(user_actions.limits)
    app.action("queue.submit")(job_actions.submit)
    app.action("queue.read")(job_actions.read_queue)
    app.action("queue.cancel")(job_actions.cancel)
    app.action("queue.cancel_any")(job_actions.cancel_any)
    app.action("job.logs")(job_actions.logs)
    app.action("usage.read")(job_actions.read_usage)
    app.action("node.read")(node_actions.read_nodes)
    app.action("node.label")(node_actions.label)
    app.action("node.reboot")(node_actions.reboot)
    app.action("reservation.list")(node_actions.list_reservations)
    app.action("reservation.create")(node_actions.create_reservation)
    app.action("reservation.remove")(node_actions.remove_reservation)
    app.action("accounting.backup")(accounting_actions.back_up)
    app.action("accounting.backups")(accounting_actions.list_backups)
    app.action("accounting.restore")(lambda op: accounting_actions.restore(op, settings))
    app.action("token.issue")(token_actions.issue)
    app.action("auth.rotate")(lambda op: auth_actions.rotate(op, settings))
    app.preview("reconfigure")(refusals.announced(reconfigure.preview, refusals.reconfigure, settings))
    app.operation("stop")(lambda op: stop_start.stop(op, settings))
    app.operation("start")(lambda op: stop_start.start(op, settings))
    app.operation("restart")(lambda op: stop_start.restart(op, settings))
    app.undo("stop")(lambda op: stop_start.undo_stop(op, settings))
    app.undo("start")(lambda op: stop_start.undo_start(op, settings))
    app.undo("restart")(lambda op: stop_start.undo_restart(op, settings))
    app.preview("stop")(refusals.announced(previews.stop, refusals.stop, settings))
    app.preview("restart")(refusals.announced(previews.restart, refusals.restart, settings))
    for role in (roles.WORKER, roles.LOGIN):
        app.operation("replace", role=role, replace_order="new_first")(lambda op: replace.replace(op, settings))
        app.undo("replace", role=role)(lambda op: replace.undo(op, settings))
        app.preview("replace", role=role)(refusals.announced(previews.replace, refusals.leave, settings))
    app.operation("replace", role=roles.CONTROLLER, replace_order="old_first")(
        lambda op: controller_move.replace(op, settings)
    )
    app.undo("replace", role=roles.CONTROLLER)(lambda op: controller_move.undo(op, settings))
    app.preview("replace", role=roles.CONTROLLER)(refusals.announced(move_checks.preview, refusals.move, settings))
    app.operation("upgrade")(lambda op: upgrade.upgrade(op, settings))
    app.undo("upgrade")(lambda op: upgrade.undo(op, settings))
    app.preview("upgrade")(
        refusals.announced(lambda op: upgrade.preview(op, settings), refusals.move_forward, settings)
    )
    app.operation("rollback")(lambda op: rollback.rollback(op, settings))
    app.preview("rollback")(refusals.announced(lambda op: rollback.preview(op, settings), refusals.move_back, settings))
    return app


app = build()


def main() -> None:
    sys.exit(app.main())
