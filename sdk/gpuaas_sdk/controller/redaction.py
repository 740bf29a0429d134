"""Secrets are replaced in all that a process sends to the platform: `logs`, `self_report` and `health` call this. Pure.

All runners of a process share one `Redaction`: a variable of an app's module can bring a secret of one project into a
line of another one."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

_SECRET_CHARS_MIN = 4
"""Shorter texts occur in many lines by chance."""
_FEW = 128
"""For up to so many different beginnings of secrets, a search for each is faster than a look at each character."""
REDACTED = "[secret]"
PROCESS_SECRETS_MAX = 4_096
"""How many parts of secrets a process replaces for each project. It runs for months; the oldest are forgotten."""


class Redaction:
    """The values that must not be sent, and their replacement.

    A line costs time by its length, not by the number of values: those are found by their first characters."""

    def __init__(self, parts_max: int | None = None) -> None:
        """`parts_max`: how many parts of values are stored for each owner. Owners do not push out parts of others."""
        self.changes = 0
        """Grows when the values change: what was cleaned before must be cleaned again."""
        self._parts_max = parts_max
        self._parts: dict[str, dict[str, None]] = {}
        self._owners: Counter[str] = Counter()
        self._lengths: dict[str, Counter[int]] = {}

    def hide(self, value: str, owner: str = "") -> None:
        """Replace this value, and each long line of it, in all that is sent from now on. Programs also print it
        with escapes for quotation marks and line breaks: in a traceback, in JSON. The owner is a project."""
        parts = {value.strip(), *(line.strip() for line in value.splitlines())}
        parts |= {escaped[1:-1] for part in parts for escaped in (repr(part), json.dumps(part))}
        stored = self._parts.setdefault(owner, {})
        for part in parts:
            if len(part) >= _SECRET_CHARS_MIN:
                if part not in stored:
                    self._add(part)
                stored.pop(part, None)  # a value that is used again is the newest
                stored[part] = None
        while self._parts_max is not None and len(stored) > self._parts_max:
            oldest = next(iter(stored))
            del stored[oldest]
            self._drop(oldest)

    def hidden(self, value: Any, *others: "Redaction") -> Any:
        """Return the value of a log line without secrets, also without those of `others`.

        All are replaced at once. If one after the other did it, a short secret of the first could be a part of a longer
        one of the second, and the rest of that would stay."""
        if isinstance(value, str):
            return _replaced(value, (self, *others))
        if isinstance(value, dict):
            return {self.hidden(key, *others): self.hidden(inner, *others) for key, inner in value.items()}
        return [self.hidden(inner, *others) for inner in value] if isinstance(value, list) else value

    def _add(self, part: str) -> None:
        self._owners[part] += 1
        if self._owners[part] == 1:
            self.changes += 1
            self._lengths.setdefault(part[:_SECRET_CHARS_MIN], Counter())[len(part)] += 1

    def _drop(self, part: str) -> None:
        self._owners[part] -= 1
        if self._owners[part]:
            return
        del self._owners[part]
        lengths = self._lengths[part[:_SECRET_CHARS_MIN]]
        lengths[len(part)] -= 1
        if not lengths[len(part)]:
            del lengths[len(part)]
        if not lengths:
            del self._lengths[part[:_SECRET_CHARS_MIN]]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where secrets begin and end in the text. They can overlap."""
        if len(self._lengths) <= _FEW and not any(beginning in text for beginning in self._lengths):
            return []
        spans: list[tuple[int, int]] = []
        for start in range(len(text) - _SECRET_CHARS_MIN + 1):
            lengths = self._lengths.get(text[start : start + _SECRET_CHARS_MIN])
            if lengths is None:
                continue
            end = max((start + length for length in lengths if text[start : start + length] in self._owners), default=0)
            if end:
                spans.append((start, end))
        return spans


def _replaced(text: str, redactions: Iterable[Redaction]) -> str:
    pieces, position = [], 0
    for start, end in _merged(sorted(span for redaction in redactions for span in redaction.spans(text))):
        pieces += [text[position:start], REDACTED]
        position = end
    return "".join([*pieces, text[position:]])


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans, with those that overlap as one: a part of a secret must not stay."""
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
