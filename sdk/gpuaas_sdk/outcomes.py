"""Errors of calls that got no usable answer. If the platform answers with an error, the client raises one of the
classes of `gpuaas_contract.errors` instead."""


class NoAnswer(Exception):
    """The call got no usable answer from the server. The caller may repeat it later."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class Unreachable(NoAnswer):
    """The server was not reached, or the call only reads. Nothing was changed."""


class OutcomeUnknown(NoAnswer):
    """The change may or may not have happened. Repeating it with the same idempotency key does not make it twice."""

    def __init__(self, message: str, *, idempotency_key: str, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.idempotency_key = idempotency_key


class UnreadableAnswer(NoAnswer):
    """The answer does not match the contract; the address may not be a GPUaaS server."""
