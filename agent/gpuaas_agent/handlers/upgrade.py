"""`agent.upgrade`: put another agent into this one's place, once it has shown that it reports.

The agent that works keeps its file and its heartbeat until then, so whatever dies on the way, the next start is good.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import sys
import zipfile
from pathlib import Path
from typing import Any

from gpuaas_agent import AGENT_VERSION, commands, files, identity, log, wire
from gpuaas_agent.handlers import spec

ALARM_AFTER_S = 5
"""A candidate whose judge has died ends by itself this long after its time was up."""


@dataclasses.dataclass(frozen=True)
class Archive:
    """The file this agent was started from, and how to start one like it."""

    path: Path
    arguments: tuple[str, ...]

    @property
    def candidate(self) -> Path:
        # Beside it, on the same file system: the swap is one rename.
        return self.path.with_name(f".{self.path.name}.candidate")

    def is_file_of_its_own(self) -> bool:
        return zipfile.is_zipfile(self.path)

    def sha256(self) -> str:
        """Empty for an agent that runs from its source."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest() if self.is_file_of_its_own() else ""

    def command(self, path: Path) -> list[str]:
        return [sys.executable, str(path), *self.arguments]


def to(sha256: str, trial_s: int, session: identity.Session, archive: Archive) -> dict[str, Any]:
    """The result is given by the agent that is wanted; any other fetches it, tries it and makes room."""
    if archive.sha256() == sha256:
        files.remove(archive.candidate)
        return {"sha256": sha256, "version": AGENT_VERSION}
    if not archive.is_file_of_its_own():
        raise spec.HandlerError("agent_not_an_archive", f"this agent runs from {archive.path}, not from a .pyz file")
    try:
        files.write_atomic(archive.candidate, fetch(sha256, session), 0o755)
        _try_out(trial_s, archive)
        archive.candidate.replace(archive.path)
    finally:
        files.remove(archive.candidate)
    files.sync_directory(archive.path.parent)
    log.event("another agent takes over", sha256=sha256)
    raise spec.Replaced(sha256)


def fetch(sha256: str, session: identity.Session) -> bytes:
    try:
        answer = session.call("GET", f"/node/v1/agent-releases/{sha256}")
        content = base64.b64decode(str(answer.get("content")), validate=True)
    except wire.Rejected as error:
        if error.retryable:
            raise spec.TryLater(str(error)) from error
        raise spec.HandlerError("agent_release_refused", str(error)) from error
    except wire.Unreachable as error:
        raise spec.TryLater(str(error)) from error
    except binascii.Error as error:
        raise spec.HandlerError("agent_digest_mismatch", "what the platform sent is not base64") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise spec.HandlerError("agent_digest_mismatch", f"the platform sent {found}, the task names {sha256}")
    return content


def _try_out(trial_s: int, archive: Archive) -> None:
    argv = [*archive.command(archive.candidate), "--trial", str(trial_s + ALARM_AFTER_S)]
    try:
        commands.run(argv, timeout_s=trial_s)
    except commands.CommandFailed as failure:
        raise spec.HandlerError(
            "agent_did_not_report", f"version {AGENT_VERSION} stays; the new agent did not report: {failure}"
        ) from failure
