"""Start the agent: read the configuration, verify the platform, enrol, run the loops until SIGTERM or an upgrade."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuaas_agent import (
    AGENT_VERSION,
    commands,
    config,
    errors,
    files,
    handlers,
    identity,
    journal,
    log,
    releases,
    report,
    tasks,
    trust,
)
from gpuaas_agent.handlers import upgrade
from gpuaas_agent.host import facts

EXIT_CONFIGURATION = 78
GRACE_S = 45.0


def main(arguments: list[str] | None = None) -> int:
    flags = _parser().parse_args(arguments)
    if flags.command:
        return pin_release_key(flags)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    signal.signal(signal.SIGINT, _exit_on_signal)
    if flags.trial:
        signal.alarm(flags.trial)
    stop = threading.Event()
    archive = own_archive(flags)
    try:
        reporter = prepare(config.load(flags.config), flags.state, archive, stop)
    except errors.CannotStart as error:
        log.error("agent.start_failed", error=str(error))
        return EXIT_CONFIGURATION
    except (commands.CommandFailed, OSError) as error:
        log.error("agent.start_failed", error=str(error))
        return 1
    if flags.trial:
        return prove(reporter)
    status = serve(reporter)
    if archive.sha256() != reporter.description["agent_sha256"]:
        os.execv(sys.executable, archive.command(archive.path))  # noqa: S606 - the new agent keeps this process id
    return status


def pin_release_key(flags: argparse.Namespace) -> int:
    try:
        key = config.pin_release_key(flags.config, flags.file)
    except errors.CannotStart as error:
        log.error("release_key.pin_failed", error=str(error))
        return EXIT_CONFIGURATION
    fix = "Restart the agent to use it: systemctl restart gpuaas-agent"
    log.info("release_key.pinned", key_id=releases.key_id(key), config=str(flags.config), fix=fix)
    return 0


def own_archive(flags: argparse.Namespace) -> upgrade.Archive:
    arguments = ("--config", str(flags.config), "--state", str(flags.state))
    return upgrade.Archive(Path(sys.argv[0]).resolve(), arguments)


def prepare(settings: config.Config, state: Path, archive: upgrade.Archive, stop: threading.Event) -> report.Reporter:
    """Prepare the agent for tasks: verify the platform, get the node's id, open the journal."""
    files.make_directory(state, 0o700)
    server = trust.establish(settings, state, stop)
    node_id = identity.enrol(server, settings, state, _description, stop)
    client = identity.NodeClient(server, node_id, state / "key.pem")
    history = journal.Journal(state / "tasks")
    if not settings.release_keys:
        log.warning("release_keys.missing", effect="upgrades of the agent are refused", fix=archive.pin_command())
    table = handlers.complete(client, archive, settings.release_keys)
    worker = tasks.Worker(client, history, state / "task.pem", table, stop)
    return report.Reporter(worker, {"agent_sha256": archive.sha256()})


def prove(reporter: report.Reporter) -> int:
    """Run on trial: run no task, and return 0 as soon as the platform has accepted a report."""
    reporter.on_trial, accepted, ended = True, threading.Event(), threading.Event()
    reporter.description = {**reporter.description, "trial": True}

    def end() -> None:
        accepted.set()
        ended.set()

    reporter.on_answer = end
    serve(reporter, ended)
    return 0 if accepted.is_set() else 1


def serve(reporter: report.Reporter, ended: threading.Event | None = None) -> int:
    """Run the loops until a signal (SystemExit from `_exit_on_signal`), an upgrade, or the failure of a loop."""
    ended = ended or threading.Event()
    worker = reporter.worker
    threading.excepthook = _log_failed_loop
    try:
        # Inside the try, because a signal or a task can arrive as soon as the first loop runs.
        _start("report", reporter.run, ended)
        _start("urgent", reporter.urgent.run, ended)
        _start("work", lambda: _work(reporter), ended)
        log.info("agent.started", version=AGENT_VERSION, node_id=worker.client.node_id)
        ended.wait()
        return 1
    finally:
        worker.stop.set()
        # Wait for running handlers only, not for threads that are in a long poll.
        if not worker.running.wait_until_none(GRACE_S):
            log.warning("agent.task_abandoned", grace_s=GRACE_S)
        log.info("agent.stopped")


def _work(reporter: report.Reporter) -> None:
    """Post the results of an earlier run, then run ordinary tasks."""
    if not reporter.on_trial:
        reporter.worker.post_unposted()
    reporter.ordinary.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuaas-agent", description="GPUaaS node agent")
    parser.add_argument("--config", type=Path, default=Path("/etc/gpuaas/agent.json"), help="default: %(default)s")
    parser.add_argument("--state", type=Path, default=Path("/var/lib/gpuaas-agent"), help="default: %(default)s")
    parser.add_argument("--trial", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=AGENT_VERSION)
    actions = parser.add_subparsers(dest="command", metavar="COMMAND", help="default: run the agent")
    pin = actions.add_parser("pin-release-key", help="accept releases of the agent that this key signed")
    pin.add_argument("file", type=Path, metavar="FILE", help="public key, made by python -m gpuaas_agent.signer")
    return parser


def _exit_on_signal(_signal: int, _frame: object) -> None:
    # Only once: a second signal must not interrupt the wait for a running handler.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: None)
    raise SystemExit(0)


def _description() -> dict[str, Any]:
    key = facts.ssh_host_public_key()
    if not key:
        log.warning("facts.ssh_host_key_missing", fix="ssh-keygen -A")
    return {"ssh_host_public_key": key, "facts": facts.collect()}


def _log_failed_loop(failure: threading.ExceptHookArgs) -> None:
    trace = traceback.format_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
    log.error("loop.failed", loop=getattr(failure.thread, "name", None), error="".join(trace))


def _start(name: str, loop: Callable[[], None], ended: threading.Event) -> None:
    def guarded() -> None:
        # A node that has lost one of its loops would still seem to work. So the agent exits, and systemd restarts it.
        try:
            loop()
        finally:
            ended.set()

    threading.Thread(target=guarded, name=name, daemon=True).start()
