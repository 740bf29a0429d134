"""Pure: decode JSON that did not pass the checks of the edge: the content of an envelope, the answer of a registry."""

from typing import TypeVar

import msgspec

_Form = TypeVar("_Form")


class Unreadable(Exception):
    """The document is not JSON of the expected form. The text is the reason, for the sender."""


def decode(raw: bytes, kind: type[_Form]) -> _Form:
    """Return the document. Text that is not UTF-8, deep nesting and numbers that are too large have errors of their
    own in the decoder; each is a mistake of the sender, not of the platform."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise Unreadable(str(error)) from error
