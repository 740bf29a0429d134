"""Answers of the platform in which every text of people and apps is hostile: each contains a script."""

import contextlib
import re
from typing import Any

import relay

SCRIPT = "<script>alert(1)</script>"
TEXTS = frozenset(
    re.findall(
        r"\w+",
        "reason status_reason message fix name instance_name node_name address holder event summary display_name title "
        "error meaning rule explanation note notes url line text version observed_version decision_reason "
        "state_reason work_id user_name owner running before after effect taken_by requested_by changed_by "
        "irreversible",
    )
)
"""Fields with texts that people, apps and machines choose."""
TITLES = {"display_name", "summary", "title"}
SCHEME = "javascript:alert(1)"
TIME = "2020-01-01T00:00:00Z"
FAILURE = {
    "task": "look",
    "code": "no_answer",
    "message": "no licence",
    "instance_id": "",
    "count": 1,
    "failed_since": TIME,
    "observed_at": TIME,
}
STATE = {
    "process": "p",
    "number": 1,
    "started_at": TIME,
    "reported_at": TIME,
    "failures": [FAILURE],
    "failures_total": 1,
}
LINE = {"number": 1, "logged_at": TIME, "level": "info", "event": "look.failed", "fields": {"why": "no licence"}}
FREE = {"adapter_detail", "payload", "details", "fields", "inputs", "result", "rows", "paths", "columns"}
"""Fields of any form: every text in them, and every name, is chosen by others."""


def hostile(value: Any, *, free: bool = False) -> Any:
    """Return an answer of the platform with a script in each text."""
    if isinstance(value, list):
        return [hostile(item, free=free) for item in value]
    if isinstance(value, dict):
        is_exit = "permitted" in value or "taken_by" in value  # its name is one of those that the contract has
        return {key: item if is_exit and key == "name" else _field(key, item, free=free) for key, item in value.items()}
    return f"{value}{SCRIPT}" if free and isinstance(value, str) else value


def _field(key: str, value: Any, *, free: bool) -> Any:
    if key in TEXTS and isinstance(value, str) and value:
        return f"{value}{SCRIPT}"
    return hostile(value, free=free or key in FREE or (key in TEXTS and isinstance(value, list)))


def relaying(server: str) -> contextlib.AbstractContextManager[str]:
    """Yield the address of a relay to the platform. What people write is passed on as it is."""
    return relay.relaying(server, _changed)


def _changed(path: str, answer: Any) -> Any:
    if "/correlations/" in path:
        answer["links"] = [{"kind": "log", "url": SCHEME}]
    if "/controllers/log" in path:
        answer["items"].append(LINE)
    elif "/controllers" in path:
        for item in answer["items"]:
            item["state"] = STATE
    if "/auth/" in path:
        return answer
    return _titled(answer) if "app-versions" in path or "/apps" in path else hostile(answer)


def _titled(value: Any) -> Any:
    """Return an app with a script in its texts. The names in it must stay: other answers have them, too."""
    if isinstance(value, list):
        return [_titled(item) for item in value]
    if isinstance(value, dict):
        return {key: f"{item}{SCRIPT}" if key in TITLES and item else _titled(item) for key, item in value.items()}
    return value
