"""Errors of calls without a usable answer. A refusal that the platform answered is one of the classes of
`gpuaas_contract.errors` instead."""


class NoAnswer(Exception):
    """There was no usable answer. The caller may try again later."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class Unreachable(NoAnswer):
    """The server was not reached, or the call was a read. Nothing has changed."""


class OutcomeUnknown(NoAnswer):
    """A change may or may not have happened. A repetition with the same key does not make it twice."""

    def __init__(self, message: str, *, idempotency_key: str, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.idempotency_key = idempotency_key


class UnreadableAnswer(NoAnswer):
    """The answer does not match the contract; the address may not be a GPUaaS server."""
