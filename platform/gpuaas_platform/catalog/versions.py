"""Pure: which version is the newer one, and which versions a pattern names."""

import re
from collections.abc import Iterable

from gpuaas_platform.policy import patterns

_PARTS = re.compile(r"[0-9]+|[a-z]+")
_BEFORE_RELEASE, _END, _WORD, _NUMBER = "0123"


def order(version: str) -> str:
    """A text that sorts as versions do: 1.9 < 1.10-rc1 < 1.10 < 1.10.1. What follows a hyphen comes before the release.

    Kept as a column, so the newest version is the first row of an index. It holds digits and lower-case letters only,
    which every database sorts alike.
    """
    release, hyphen, preview = version.lower().partition("-")
    end = _BEFORE_RELEASE + _parts(preview) if hyphen else ""
    return _parts(release) + end + _END


def is_newer(version: str, than: str) -> bool:
    return order(version) > order(than)


def matches(allowed: Iterable[str], version: str) -> bool:
    return patterns.naming(allowed, version) is not None


def _parts(text: str) -> str:
    return "".join(_number(part) if part.isdigit() else _WORD + part for part in _PARTS.findall(text))


def _number(digits: str) -> str:
    """Its length goes first: of two numbers the longer one is larger."""
    digits = digits.lstrip("0")
    return f"{_NUMBER}{len(digits):02d}{digits}"
