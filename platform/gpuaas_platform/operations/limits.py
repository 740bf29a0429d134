"""Texts of reports that are too long are shortened."""

import msgspec
from gpuaas_contract.operations import Evidence

_TEXT_CHARS_MAX = 2_000


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
