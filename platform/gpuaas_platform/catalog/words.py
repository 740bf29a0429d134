"""Pure: texts for flaws in a manifest: the path of a field, and a suggestion for an unknown word."""

import difflib
from collections.abc import Iterable

_SHOWN_MAX = 60


def path(start: str, *parts: str | int) -> str:
    """Return the path of a field: `path("roles", 1, "min")` is `roles[1].min`."""
    whole = start
    for part in parts:
        whole += f"[{part}]" if isinstance(part, int) else f".{part}"
    return whole.removeprefix(".")


def unknown(what: str, word: object, known: Iterable[str]) -> str:
    choices = sorted(known)
    close = difflib.get_close_matches(str(word), choices, n=1, cutoff=0.6)
    hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(choices) or 'none'}"
    return f"there is no {what} `{str(word)[:_SHOWN_MAX]}`; {hint}"
