"""Size limits of reports: a detail that is too large is refused, a text that is too long is shortened."""

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.operations import Evidence

_DETAIL_MAX_BYTES = 16_384
_TEXT_CHARS_MAX = 2_000


def check_size(detail: object, bytes_max: int = _DETAIL_MAX_BYTES, name: str = "adapter_detail") -> None:
    if detail is not None and len(msgspec.json.encode(detail)) > bytes_max:
        raise errors.ValidationFailed(f"{name} holds at most {bytes_max} bytes of JSON.", details={"field": name})


def clipped(text: str) -> str:
    """Shorten a text instead of refusing the report, because the report is more important than its full text."""
    return text[:_TEXT_CHARS_MAX]


def clipped_evidence(evidence: Evidence) -> Evidence:
    return msgspec.structs.replace(
        evidence,
        source=clipped(evidence.source),
        detail=clipped(evidence.detail),
        work_digest=clipped(evidence.work_digest),
    )
