"""Decide whether an observation proves that a member is idle."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.operations import (
    CLOCKS_APART_S,
    EVIDENCE_FRESH_FOR_S,
    Evidence,
)


def evidence_gap(evidence: Evidence | None, now: datetime.datetime) -> errors.EvidenceRequired | None:
    """What is missing before a member may be taken away; None when it is shown to be idle."""
    if evidence is None:
        return errors.EvidenceMissing(details={"missing": "observation"})
    age_s = (now - evidence.observed_at).total_seconds()
    said = {"state": evidence.state, "source": evidence.source, "age_s": round(age_s, 1)}
    if not -CLOCKS_APART_S <= age_s <= EVIDENCE_FRESH_FOR_S:
        return errors.EvidenceStale(
            f"It was seen {age_s:.0f} s ago; {EVIDENCE_FRESH_FOR_S} s is the limit.",
            details={"missing": "fresh observation", **said},
        )
    if evidence.state == "busy" or evidence.running_work:
        return errors.EvidenceBusy(evidence.detail, details={"missing": "end of running work", **said})
    if evidence.state != "idle":
        return errors.EvidenceUnknown(evidence.detail, details={"missing": "readable observation", **said})
    return None
