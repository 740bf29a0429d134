"""Decide whether an observation proves that a member is idle."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.operations import CLOCKS_APART_S, EVIDENCE_FRESH_FOR_S, Evidence


def evidence_gap(evidence: Evidence | None, now: datetime.datetime) -> errors.EvidenceRequired | None:
    """Return what is missing before a member may be removed; None if the evidence shows that it is idle."""
    if evidence is None:
        return errors.EvidenceMissing(details={"missing": "observation"})
    age_s = (now - evidence.observed_at).total_seconds()
    facts = {"state": evidence.state, "source": evidence.source, "age_s": round(age_s, 1)}
    if not -CLOCKS_APART_S <= age_s <= EVIDENCE_FRESH_FOR_S:
        return errors.EvidenceStale(
            f"The observation is {age_s:.0f} s old; the limit is {EVIDENCE_FRESH_FOR_S} s.",
            details={"missing": "fresh observation", **facts},
        )
    if evidence.state == "busy" or evidence.running_work:
        return errors.EvidenceBusy(evidence.detail, details={"missing": "end of running work", **facts})
    if evidence.state != "idle":
        return errors.EvidenceUnknown(evidence.detail, details={"missing": "readable observation", **facts})
    return None
