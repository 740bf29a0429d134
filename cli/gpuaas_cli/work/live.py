"""Draw an operation on a terminal while it runs: a tree of steps per member. Imported by `follow` when needed."""

import contextlib
import datetime
import functools
from collections.abc import Callable, Iterator, Mapping

from gpuaas_contract.operations import Operation, Step
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text
from rich.tree import Tree

from gpuaas_cli import output
from gpuaas_cli.output import duration, flat
from gpuaas_cli.show import steps
from gpuaas_cli.work.console import CleanConsole

_MARKS = {"succeeded": ("✓", "green"), "failed": ("✗", "red"), "cancelled": ("-", "yellow")}
_SPARE_LINES = 4


@contextlib.contextmanager
def drawn() -> Iterator[Callable[[Operation, Mapping[str, str]], None]]:
    console = CleanConsole()
    draw: Callable[[], RenderableType] = Group

    def update(operation: Operation, names: Mapping[str, str]) -> None:
        nonlocal draw
        draw = functools.partial(_tree, operation, names, console)

    # Draw eight times a second, so that durations advance between changes.
    with Live(get_renderable=lambda: draw(), console=console, refresh_per_second=8, redirect_stdout=False):
        yield update


def _tree(operation: Operation, names: Mapping[str, str], console: Console) -> Tree:
    now = output.now()
    tree = Tree(_head(operation, now), guide_style="dim")
    if operation.status == "accepted":
        tree.add(_running(Text(steps.waiting(operation), style="dim")))
    by_member: dict[str, list[Step]] = {}
    for step in operation.steps:
        by_member.setdefault(step.member_id, []).append(step)
    is_too_long = len(operation.steps) + len(by_member) > console.height - _SPARE_LINES
    for member_id, result in by_member.items():
        branch = tree.add(Text(names.get(member_id, member_id), style="bold")) if member_id else tree
        # Too many lines for the window: show only the latest step of each member.
        for step in result[-1:] if is_too_long else result:
            branch.add(_step(step, now))
    return tree


def _step(step: Step, now: datetime.datetime) -> Spinner | Text:
    message = f"  {flat(step.message)}" if step.message else ""
    text = Text.assemble(
        flat(step.name), (f"  {duration(step.started_at, step.ended_at or now)}", "dim"), (message, "dim")
    )
    if step.state == "running":
        return _running(text)
    mark, style = _MARKS[step.state]
    return Text.assemble((f"{mark} ", style), text)


def _running(text: Text) -> Spinner:
    """Return a spinner. It is new for each frame, so it must animate by the console's time and not by its own age."""
    spinner = Spinner("dots", text, style="cyan")
    spinner.start_time = 0.0
    return spinner


def _head(operation: Operation, now: datetime.datetime) -> Text:
    style = _MARKS.get(operation.status, ("", "cyan"))[1]
    took = duration(operation.created_at, operation.ended_at or now)
    count = f"  {operation.progress.done} of {operation.progress.total} done" if operation.progress.total > 1 else ""
    title, operation_id = (steps.title(operation), "bold"), (operation.operation_id, "dim")
    return Text.assemble(title, "  ", (operation.status, style), f"  {took}{count}  ", operation_id)
