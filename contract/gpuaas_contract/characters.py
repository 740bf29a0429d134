"""Which characters text may contain. The platform refuses a request with others and names the field.

Other control characters are commands to the terminal of the reader, and direction marks change the order
in which a reader sees it. Values that no one reads are exempt: fields of the type `wire.Secret`, and content that is
not JSON. Programs that report what other programs printed replace these characters first, with `replaced`."""

import re
from typing import Any

import msgspec

REFUSED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except newline and tab, and marks that change the direction of text."""
# The same characters in a JSON document: as an escape, or as UTF-8. JSON allows the first 32 as escapes only.
_ESCAPE = re.compile(rb"\\(?:[bfr]|u00(?:[0189][0-9a-fA-F]|7[fF])|u202[a-eA-E]|u206[6-9])")
_C1 = re.compile(rb"\xc2[\x80-\x9f]")
_DIRECTION = re.compile(rb"\xe2(?:\x80[\xaa-\xae]|\x81[\xa6-\xa9])")


def may_be_refused(document: bytes) -> bool:
    """Return False if no text in a JSON document has a character that is not allowed. True means: decode it and look.

    Every request pays for this, so the searches that are fast come first."""
    if b"\x7f" in document or (b"\\" in document and _ESCAPE.search(document) is not None):
        return True
    return not document.isascii() and (_C1.search(document) or _DIRECTION.search(document)) is not None


def refused(text: str) -> str:
    """Return the code of the first character that is not allowed in a text, such as `U+001B`; empty if there is
    none."""
    match = REFUSED.search(text)
    return f"U+{ord(match[0]):04X}" if match else ""


def clean(text: str) -> str:
    """Return the text with the characters that are not allowed replaced."""
    return REFUSED.sub("\ufffd", text)


def replaced(document: bytes) -> bytes:
    """Return the JSON document with the characters that are not allowed replaced, in keys too."""
    return msgspec.json.encode(_replaced(msgspec.json.decode(document))) if may_be_refused(document) else document


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_replaced(key): _replaced(inner) for key, inner in value.items()}
    return [_replaced(inner) for inner in value] if isinstance(value, list) else value
