"""Pure: how flaws of a manifest are put into words: by the path of the field, and with the word that was meant."""

import difflib
from collections.abc import Iterable

_SHOWN_MAX = 60


def path(start: str, *parts: str | int) -> str:
    """`path("roles", 1, "min")` is `roles[1].min`."""
    found = start
    for part in parts:
        found += f"[{part}]" if isinstance(part, int) else f".{part}"
    return found.removeprefix(".")


def unknown(what: str, word: object, known: Iterable[str]) -> str:
    choices = sorted(known)
    close = difflib.get_close_matches(str(word), choices, n=1, cutoff=0.6)
    hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(choices) or 'none'}"
    return f"there is no {what} `{str(word)[:_SHOWN_MAX]}`; {hint}"
