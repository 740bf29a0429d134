"""Where the agent starts: arguments, configuration, trust, enrolment, then its loops until SIGTERM or a successor."""

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
    facts,
    files,
    handlers,
    heartbeat,
    identity,
    journal,
    log,
    polling,
    tasks,
    trust,
)
from gpuaas_agent.handlers import upgrade

EXIT_CONFIGURATION = 78
GRACE_S = 45.0


def main(arguments: list[str] | None = None) -> int:
    flags = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    if flags.trial:
        signal.alarm(flags.trial)
    stop = threading.Event()
    archive = own_archive(flags)
    try:
        poller = prepare(config.load(flags.config), flags.state, archive, stop)
    except config.CannotStart as error:
        log.event("the agent cannot start", level="error", error=str(error))
        return EXIT_CONFIGURATION
    except (commands.CommandFailed, OSError) as error:
        log.event("the agent cannot start", level="error", error=str(error))
        return 1
    me = {"agent_sha256": archive.sha256()}
    if flags.trial:
        return prove(poller, {**me, "trial": True})
    status = serve(poller, me)
    if archive.sha256() != me["agent_sha256"]:
        os.execv(sys.executable, archive.command(archive.path))  # noqa: S606 - the successor keeps our process id
    return status


def own_archive(flags: argparse.Namespace) -> upgrade.Archive:
    arguments = ("--config", str(flags.config), "--state", str(flags.state))
    return upgrade.Archive(Path(sys.argv[0]).resolve(), arguments)


def prepare(settings: config.Config, state: Path, archive: upgrade.Archive, stop: threading.Event) -> polling.Poller:
    """Everything that must hold before the first task: a believed platform, a known node id, a journal."""
    files.make_directory(state, 0o700)
    server = trust.establish(settings, state, stop)
    node_id = identity.enrol(server, settings, state, _description, stop)
    session = identity.Session(server, node_id, state / "key.pem")
    record = journal.Journal(state / "tasks")
    worker = tasks.Worker(session, record, state / "task.pem", handlers.known_to(session, archive), stop)
    return polling.Poller(worker)


def prove(poller: polling.Poller, me: dict[str, Any]) -> int:
    """On trial: run as ever, touch no task, and end well as soon as the platform has heard a beat and a poll."""
    poller.on_trial = True
    beaten, polled, ended = threading.Event(), threading.Event(), threading.Event()

    def note(loop: threading.Event) -> None:
        loop.set()
        if beaten.is_set() and polled.is_set():
            ended.set()

    poller.heard = lambda: note(polled)
    serve(poller, me, heard=lambda: note(beaten), ended=ended)
    return 0 if beaten.is_set() and polled.is_set() else 1


def serve(
    poller: polling.Poller,
    me: dict[str, Any],
    heard: Callable[[], None] = lambda: None,
    ended: threading.Event | None = None,
) -> int:
    """Run the loops until a signal (SystemExit from `_leave`), a successor, or until one of them breaks."""
    ended = ended or threading.Event()
    worker = poller.worker
    session, stop = worker.session, worker.stop
    threading.excepthook = _log_broken_loop
    try:
        # A signal may come as soon as the first loop runs, and a task with it.
        _start("heartbeat", lambda: heartbeat.run(session, me, stop, heard), ended)
        _start("tasks", poller.run, ended)
        _start("work", poller.work, ended)
        log.event("the agent runs", version=AGENT_VERSION, node_id=session.node_id)
        ended.wait()
        return 1
    finally:
        stop.set()
        # The threads may sit in a long poll and are left behind; only running handlers are waited for.
        if not worker.running.all_ended(GRACE_S):
            log.event("a task still runs, ending without it", level="warning", grace_s=GRACE_S)
        log.event("the agent ends")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuaas-agent", description="GPUaaS node agent")
    parser.add_argument("--config", type=Path, required=True, help="for example /etc/gpuaas/agent.json")
    parser.add_argument("--state", type=Path, default=Path("/var/lib/gpuaas-agent"), help="default: %(default)s")
    parser.add_argument("--trial", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=AGENT_VERSION)
    return parser


def _leave(_signal: int, _frame: object) -> None:
    # Only once: a second signal must not cut the wait for a running handler short.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: None)
    raise SystemExit(0)


def _description() -> dict[str, Any]:
    key = facts.ssh_host_public_key()
    if not key:
        log.event("sshd has no host key yet; it is reported with the first allocation", level="warning")
    return {"ssh_host_public_key": key, "facts": facts.collect()}


def _log_broken_loop(broken: threading.ExceptHookArgs) -> None:
    trace = traceback.format_exception(broken.exc_type, broken.exc_value, broken.exc_traceback)
    log.event("a loop broke", level="error", loop=getattr(broken.thread, "name", None), error="".join(trace))


def _start(name: str, loop: Callable[[], None], ended: threading.Event) -> None:
    def guarded() -> None:
        # A loop that dies alone would leave a node that looks alive: the whole agent ends and systemd starts it again.
        try:
            loop()
        finally:
            ended.set()

    threading.Thread(target=guarded, name=name, daemon=True).start()
