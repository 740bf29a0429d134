"""Show that something is being waited for: a spinner with a clock on a terminal, one line in a log."""

import contextlib
from collections.abc import Iterator

from gpuaas_cli import output
from gpuaas_cli.work import follow


@contextlib.contextmanager
def shown(text: str) -> Iterator[None]:
    if not follow.on_terminal():
        output.talk(text)
        yield
        return
    from rich import console, progress  # noqa: PLC0415 - a tenth of a second that only terminals need

    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=console.Console(stderr=True), transient=True) as view:
        view.add_task(text, total=None)
        yield
