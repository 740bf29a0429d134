"""Pure: compare versions, and match versions with patterns."""

import re
from collections.abc import Iterable

from gpuaas_platform.policy import patterns

_PARTS = re.compile(r"[0-9]+|[a-z]+")
_BEFORE_RELEASE, _END, _WORD, _NUMBER = "0123"


def order(version: str) -> str:
    """Return a text that sorts like versions: 1.9 < 1.10-rc1 < 1.10 < 1.10.1. A hyphen marks a preview of the release.

    It is stored in a column, so that an index finds the newest version. It has only digits and lower-case letters,
    which all databases sort in the same way.
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
    """Return the number with its length in front, so that longer numbers sort after shorter ones."""
    digits = digits.lstrip("0")
    return f"{_NUMBER}{len(digits):02d}{digits}"
