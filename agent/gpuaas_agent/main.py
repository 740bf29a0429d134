"""Where the agent starts: arguments, configuration, trust, enrolment, then two loops until SIGTERM."""

from __future__ import annotations

import argparse
import signal
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
    tasks,
    trust,
)

EXIT_CONFIGURATION = 78
GRACE_S = 45.0


def main(arguments: list[str] | None = None) -> int:
    flags = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    stop = threading.Event()
    try:
        worker, session = prepare(config.load(flags.config), flags.state, stop)
    except config.CannotStart as error:
        log.event("the agent cannot start", level="error", error=str(error))
        return EXIT_CONFIGURATION
    except (commands.CommandFailed, OSError) as error:
        log.event("the agent cannot start", level="error", error=str(error))
        return 1
    return serve(worker, session, stop)


def prepare(settings: config.Config, state: Path, stop: threading.Event) -> tuple[tasks.Worker, identity.Session]:
    """Everything that must hold before the first task: a believed platform, a known node id, a journal."""
    files.make_directory(state, 0o700)
    server = trust.establish(settings, state, stop)
    node_id = identity.enrol(server, settings, state, _description, stop)
    session = identity.Session(server, node_id, state / "key.pem")
    record = journal.Journal(state / "tasks")
    return tasks.Worker(session, record, state / "task.pem", handlers.HANDLERS, stop), session


def serve(worker: tasks.Worker, session: identity.Session, stop: threading.Event) -> int:
    """Run both loops until a signal (SystemExit from `_leave`) or until one of them breaks."""
    broken = threading.Event()
    threading.excepthook = _log_broken_loop
    _start("heartbeat", lambda: heartbeat.run(session, stop), broken)
    _start("tasks", worker.run, broken)
    log.event("the agent runs", version=AGENT_VERSION, node_id=session.node_id)
    try:
        broken.wait()
        return 1
    finally:
        stop.set()
        # The threads may sit in a long poll and are left behind; only a running handler is waited for.
        if not worker.working.acquire(timeout=GRACE_S):
            log.event("a task still runs, ending without it", level="warning", grace_s=GRACE_S)
        log.event("the agent ends")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuaas-agent", description="GPUaaS node agent")
    parser.add_argument("--config", type=Path, required=True, help="for example /etc/gpuaas/agent.json")
    parser.add_argument("--state", type=Path, default=Path("/var/lib/gpuaas-agent"), help="default: %(default)s")
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


def _start(name: str, loop: Callable[[], None], broken: threading.Event) -> None:
    def guarded() -> None:
        # A loop that dies alone would leave a node that looks alive: the whole agent ends and systemd starts it again.
        try:
            loop()
        finally:
            broken.set()

    threading.Thread(target=guarded, name=name, daemon=True).start()
