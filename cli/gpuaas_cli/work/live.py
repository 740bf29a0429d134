"""Draw an operation on a terminal while it runs: a tree of steps per member. Imported by `follow` when needed."""

import contextlib
import datetime
from collections.abc import Callable, Iterator, Mapping

from gpuaas_contract.operations import Operation, Step
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text
from rich.tree import Tree

from gpuaas_cli import output
from gpuaas_cli.output import clean, duration
from gpuaas_cli.show import steps

_MARKS = {"succeeded": ("✓", "green"), "failed": ("✗", "red"), "cancelled": ("-", "yellow")}
_SPARE_LINES = 4


@contextlib.contextmanager
def drawn() -> Iterator[Callable[[Operation, Mapping[str, str]], None]]:
    console = Console(stderr=True, highlight=False)
    picture = _Picture(console)
    with Live(get_renderable=picture.draw, console=console, refresh_per_second=8, redirect_stdout=False):
        yield picture.update


class _Picture:
    """What rich asks for eight times a second, in a thread; spinners keep their own time between changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._latest: tuple[Operation, Mapping[str, str]] | None = None
        self._spinners: dict[steps.Key, Spinner] = {}

    def update(self, operation: Operation, names: Mapping[str, str]) -> None:
        self._latest = operation, names

    def draw(self) -> RenderableType:
        if self._latest is None:
            return Group()
        (operation, names), now = self._latest, output.now()
        tree = Tree(_head(operation, now), guide_style="dim")
        if operation.status == "accepted":
            tree.add(self._running(("", ""), Text(steps.waiting(operation), style="dim")))
        by_member: dict[str, list[Step]] = {}
        for step in operation.steps:
            by_member.setdefault(step.member_id, []).append(step)
        is_too_long = len(operation.steps) + len(by_member) > self._console.height - _SPARE_LINES
        for member_id, result in by_member.items():
            branch = tree.add(Text(names.get(member_id, member_id), style="bold")) if member_id else tree
            # Too many lines for the window: each member shows its latest step only.
            for step in result[-1:] if is_too_long else result:
                branch.add(self._step(step, now))
        return tree

    def _step(self, step: Step, now: datetime.datetime) -> Spinner | Text:
        message = f"  {clean(step.message)}" if step.message else ""
        text = Text.assemble(step.name, (f"  {duration(steps.step_s(step, now))}", "dim"), (message, "dim"))
        if step.state == "running":
            return self._running(steps.key(step), text)
        mark, style = _MARKS[step.state]
        return Text.assemble((f"{mark} ", style), text)

    def _running(self, key: steps.Key, text: Text) -> Spinner:
        spinner = self._spinners.setdefault(key, Spinner("dots", style="cyan"))
        spinner.update(text=text)
        return spinner


def _head(operation: Operation, now: datetime.datetime) -> Text:
    style = _MARKS.get(operation.status, ("", "cyan"))[1]
    took = duration(steps.elapsed_s(operation, operation.ended_at or now))
    count = f"  {operation.progress.done} of {operation.progress.total} done" if operation.progress.total > 1 else ""
    title, operation_id = (steps.title(operation), "bold"), (operation.operation_id, "dim")
    return Text.assemble(title, "  ", (operation.status, style), f"  {took}{count}  ", operation_id)
