"""Watch an operation until it ends, on a terminal or in a log. Ctrl-C does not stop the operation."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuaas_contract.capacity import ALLOCATION_GET
from gpuaas_contract.catalog import ResultColumn
from gpuaas_contract.errors import NotFound, PermissionDenied
from gpuaas_contract.instances import MEMBER_LIST
from gpuaas_contract.lifecycles import OperationStatus
from gpuaas_contract.operations import Operation

from gpuaas_cli import failures, output, terminal
from gpuaas_cli.client.session import Session
from gpuaas_cli.flags import Flags
from gpuaas_cli.show import results, steps

QUIET_S = 10.0
"""Show what the operation waits for if no controller claims it in this time."""
Update = Callable[[Operation, Mapping[str, str]], None]
"""Called with every new state of the operation, and the names of its members."""


async def finish(
    session: Session,
    operation: Operation,
    about: str,
    *,
    detach: bool,
    dry_run: bool,
    wanted: OperationStatus,
    columns: Sequence[ResultColumn] = (),
) -> int:
    """Follow an accepted operation, or show the plan of a dry run. `about` names what the operation changes; `columns`
    are those of the action's result."""
    if dry_run and not session.flags.structured_whole:
        hit = operation.preview is not None and operation.preview.running_work
        names = await names_in(session, operation) if hit else {}
        terminal.out("\n".join(steps.plan(operation, about, names, output.now())))
    elif dry_run or detach:
        show(session.flags, operation)
    else:
        return await to_the_end(session, operation.operation_id, wanted=wanted, columns=columns)
    follow_it = f"continues in the background. Follow it: gpuaas op follow {operation.operation_id}"
    output.talk("Nothing was changed." if dry_run else f"{steps.title(operation)} {follow_it}")
    return failures.OK


async def to_the_end(
    session: Session,
    operation_id: str,
    *,
    quiet: bool = False,
    wanted: OperationStatus = "succeeded",
    columns: Sequence[ResultColumn] = (),
) -> int:
    """Watch an operation until it ends, with any status, and return the exit code."""
    try:
        operation = await _watch(session, operation_id, quiet=quiet)
    except asyncio.CancelledError:
        detached = "\nDetached. The operation continues in the background; nothing was cancelled."
        output.talk(f"{detached}\n  follow it: gpuaas op follow {operation_id}")
        raise
    if session.flags.structured:
        show(session.flags, operation)
    if operation.status == wanted:
        _say(session.flags, steps.outcome(operation))
        if operation.result is not None and not session.flags.structured:
            terminal.out("\n".join(results.lines(operation.result, columns)))
        return failures.OK
    output.talk(failure_text(operation, as_json=session.flags.output == "json"))
    return failures.FAILED


def show(flags: Flags, operation: Operation) -> None:
    if flags.structured_whole:
        output.show_data(flags, operation)
    else:
        terminal.out(operation.operation_id)


def failure_text(operation: Operation, *, as_json: bool) -> str:
    error = operation.error
    failure = failures.Failure(
        f"{steps.outcome(operation)}: {output.flat(error.message)}" if error else steps.outcome(operation),
        code=error.code if error else operation.status,
        fix=(output.flat(error.fix) if error else "") or f"gpuaas describe operation {operation.operation_id}",
        correlation_id=operation.correlation_id,
    )
    text = failures.text(failure, as_json=as_json)
    if as_json:
        return text
    look = f"  look: gpuaas describe operation {operation.operation_id}"
    return "\n".join([text, look, *(f"  or:   {command}" for command in steps.exit_commands(operation))])


def on_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextlib.contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show `text` while the caller waits: with a spinner and a clock on a terminal, as one line in a log."""
    if not on_terminal():
        output.talk(text)
        yield
        return
    from rich import progress  # noqa: PLC0415 - a tenth of a second that only terminals need

    from gpuaas_cli.work.console import CleanConsole  # noqa: PLC0415

    description = progress.TextColumn("{task.description}", markup=False)
    columns = (progress.SpinnerColumn(), description, progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=CleanConsole(), transient=True) as view:
        view.add_task(text, total=None)
        yield


async def _watch(session: Session, operation_id: str, *, quiet: bool) -> Operation:
    names: dict[str, str] = {}
    with _view(session.flags, quiet=quiet) as update:
        async for operation in session.client.watch_operation(await session.project(), operation_id):
            if {step.member_id for step in operation.steps} - {"", *names}:
                names = await names_in(session, operation)
            update(operation, names)
    return operation


async def names_in(session: Session, operation: Operation) -> dict[str, str]:
    """Return the names of the instance's members by id; empty if the caller may not list members."""
    moved = [target for target in operation.targets if target.allocation_id]
    ids = {item for target in moved for item in (target.previous_allocation_id, target.allocation_id) if item}
    with contextlib.suppress(NotFound, PermissionDenied):
        names = steps.names_of(await session.every(MEMBER_LIST, instance_id=operation.instance_id))
        nodes = {item: (await session.call(ALLOCATION_GET, allocation_id=item)).node_name for item in sorted(ids)}
        return steps.moved(operation, names, nodes)
    return {}


def _view(flags: Flags, *, quiet: bool) -> contextlib.AbstractContextManager[Update]:
    if quiet:
        return contextlib.nullcontext(lambda _operation, _names: None)
    if not on_terminal():
        return _lines(flags)
    from gpuaas_cli.work import live  # noqa: PLC0415 - rich costs a tenth of a second, and only terminals need it

    return live.drawn()


@contextlib.contextmanager
def _lines(flags: Flags) -> Iterator[Update]:
    """Print one line per change."""
    seen: steps.Seen = {}
    with contextlib.ExitStack() as patience:

        def update(operation: Operation, names: Mapping[str, str]) -> None:
            patience.close()
            if operation.status == "accepted":
                loop = asyncio.get_running_loop()
                patience.callback(loop.call_later(QUIET_S, _say, flags, steps.waiting(operation)).cancel)
            for line in steps.news(operation, seen, names, output.now()):
                _say(flags, line)

        yield update


def _say(flags: Flags, text: str) -> None:
    """Print progress: to stdout as data, but to stderr on a terminal or with structured output."""
    (terminal.talk if flags.structured or on_terminal() else terminal.out)(text)
