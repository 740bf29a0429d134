"""What a call ends with when the platform gave no usable answer. Raised by `client`; an answered refusal is one of
the classes of `gpuaas_contract.errors` instead."""


class NoAnswer(Exception):
    """Base: whoever can wait tries again later."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class Unreachable(NoAnswer):
    """Nothing has changed: the request was a read, or it never reached the server."""


class OutcomeUnknown(NoAnswer):
    """A change may or may not have happened. The same key asks again without doing it twice."""

    def __init__(self, message: str, *, idempotency_key: str, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.idempotency_key = idempotency_key


class UnreadableAnswer(NoAnswer):
    """Something answered that does not speak the platform's contract."""
