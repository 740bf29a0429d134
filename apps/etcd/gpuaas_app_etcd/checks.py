"""Named questions about etcd, each with a reason that people read. Pure."""

from collections.abc import Mapping
from typing import Any

from gpuaas_sdk.checks import Check


def healthy(hostname: str, answer: Mapping[str, Any]) -> Check:
    """Return whether the member serves consistent reads, from the answer of its health page."""
    reason = answer.get("reason") or "no reason was given"
    return Check(str(answer.get("health")).lower() == "true", f"etcd on {hostname} is not healthy: {reason}")


def no_alarm(unwell: Mapping[str, str]) -> Check:
    """Return whether no member has an alarm: its database is full or damaged, and it accepts no writes."""
    alarms = [reason for reason in unwell.values() if "ALARM" in reason]
    return Check(not alarms, f"{'; '.join(alarms)}. See apps/etcd/docs/runbook.md")
