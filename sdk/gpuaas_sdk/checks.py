"""The answer to a named question, such as "does the scheduler answer?". Apps return it, and `Operation.until` waits for it."""

import msgspec


class Check(msgspec.Struct, frozen=True):
    """The result of a check. Users see the reason while it has not passed."""

    ok: bool
    reason: str = ""
