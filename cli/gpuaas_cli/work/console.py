"""A console of rich whose text is clean, as everything that `terminal` writes. Imported when needed: rich is slow."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from gpuaas_cli import terminal


class CleanConsole(Console):
    """Writes to stderr. Colours and cursor moves are separate from the text, so only the text is changed."""

    def __init__(self) -> None:
        super().__init__(stderr=True, highlight=False)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(terminal.clean(segment.text), segment.style)
