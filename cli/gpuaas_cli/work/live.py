"""Draw an operation on a terminal while it runs: a tree of steps per member. Imported by `follow` when needed."""

import datetime
import threading
from collections.abc import Mapping

from gpuaas_contract.operations import Operation, Step
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text
from rich.tree import Tree

from gpuaas_cli.output import clean, duration
from gpuaas_cli.show import steps

_MARKS = {"succeeded": ("✓", "green"), "failed": ("✗", "red"), "cancelled": ("-", "yellow")}
_SPARE_LINES = 4


class LiveView:
    """Use as a context manager; `update` takes every new state of the operation."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._picture = _Picture()
        self._live = Live(
            self._picture, console=self._console, refresh_per_second=8, transient=False, redirect_stdout=False
        )

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, operation: Operation, names: Mapping[str, str]) -> None:
        self._picture.update(operation, names)


class _Picture:
    """What rich asks for eight times a second; spinners keep their own time between changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operation: Operation | None = None
        self._names: Mapping[str, str] = {}
        self._spinners: dict[steps.Key, Spinner] = {}

    def update(self, operation: Operation, names: Mapping[str, str]) -> None:
        with self._lock:
            self._operation, self._names = operation, names

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            operation, names = self._operation, self._names
        if operation is not None:
            room = (options.max_height or console.height) - _SPARE_LINES
            yield self._tree(operation, names, room)

    def _tree(self, operation: Operation, names: Mapping[str, str], room: int) -> Tree:
        now = datetime.datetime.now(datetime.UTC)
        tree = Tree(_head(operation, now), guide_style="dim")
        if operation.status == "accepted":
            tree.add(self._running(("", ""), Text(steps.waiting(operation), style="dim")))
        by_member: dict[str, list[Step]] = {}
        for step in operation.steps:
            by_member.setdefault(step.member_id, []).append(step)
        lines = len(operation.steps) + len(by_member)
        for member_id, result in by_member.items():
            branch = tree.add(Text(names.get(member_id, member_id), style="bold")) if member_id else tree
            # Too many lines for the window: each member shows its latest step only.
            for step in result if lines <= room else result[-1:]:
                branch.add(self._step(step, now))
        return tree

    def _step(self, step: Step, now: datetime.datetime) -> Spinner | Text:
        message = f"  {clean(step.message)}" if step.message else ""
        text = Text.assemble(
            step.name, (f"  {duration(step.started_at, step.ended_at or now)}", "dim"), (message, "dim")
        )
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
    took = duration(operation.created_at, operation.ended_at or now)
    count = f"  {operation.progress.done} of {operation.progress.total} done" if operation.progress.total > 1 else ""
    return Text.assemble(
        (steps.title(operation), "bold"),
        "  ",
        (operation.status, style),
        f"  {took}{count}  ",
        (operation.operation_id, "dim"),
    )
