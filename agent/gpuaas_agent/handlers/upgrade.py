"""`agent.upgrade`: replace the file of this agent by a new agent, after the new one has reported to the platform.

Until then this agent keeps its file and sends its heartbeats, so that a crash at any point leaves an agent that starts.
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

from gpuaas_agent import AGENT_VERSION, commands, errors, files, identity, log, wire

TRIAL_ALARM_S = 5
"""A new agent on trial exits by itself this long after its trial time, because its parent agent may have died."""


@dataclasses.dataclass(frozen=True)
class Archive:
    """The file this agent was started from, and the arguments to start another file in the same way."""

    path: Path
    arguments: tuple[str, ...]

    @property
    def candidate(self) -> Path:
        # In the same folder and so on the same file system, because the replacement must be one rename.
        return self.path.with_name(f".{self.path.name}.candidate")

    def is_archive(self) -> bool:
        return zipfile.is_zipfile(self.path)

    def sha256(self) -> str:
        """Return the digest of the agent's file; empty if the agent runs from its source."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest() if self.is_archive() else ""

    def command(self, path: Path) -> list[str]:
        return [sys.executable, str(path), *self.arguments]


def upgrade(sha256: str, trial_s: int, client: identity.NodeClient, archive: Archive) -> dict[str, Any]:
    """Fetch, try and install the agent with this digest, and raise `Replaced`. Return the result if it runs already."""
    if archive.sha256() == sha256:
        files.remove(archive.candidate)
        return {"sha256": sha256, "version": AGENT_VERSION}
    if not archive.is_archive():
        raise errors.TaskFailed("agent_not_an_archive", f"this agent runs from {archive.path}, not from a .pyz file")
    try:
        files.write_atomic(archive.candidate, fetch(sha256, client), 0o755)
        _run_trial(trial_s, archive)
        archive.candidate.replace(archive.path)
    finally:
        files.remove(archive.candidate)
    files.sync_directory(archive.path.parent)
    log.info("agent.replaced", sha256=sha256)
    raise errors.Replaced(sha256)


def fetch(sha256: str, client: identity.NodeClient) -> bytes:
    try:
        answer = client.call("GET", f"/node/v1/agent-releases/{sha256}")
        content = base64.b64decode(str(answer.get("content")), validate=True)
    except wire.Rejected as error:
        if error.retryable:
            raise errors.TryLater(str(error)) from error
        raise errors.TaskFailed("agent_release_refused", str(error)) from error
    except wire.Unreachable as error:
        raise errors.TryLater(str(error)) from error
    except binascii.Error as error:
        raise errors.TaskFailed("agent_digest_mismatch", "the platform's answer is not base64") from error
    received = hashlib.sha256(content).hexdigest()
    if received != sha256:
        raise errors.TaskFailed("agent_digest_mismatch", f"the platform sent the digest {received} instead of {sha256}")
    return content


def _run_trial(trial_s: int, archive: Archive) -> None:
    argv = [*archive.command(archive.candidate), "--trial", str(trial_s + TRIAL_ALARM_S)]
    try:
        commands.run(argv, timeout_s=trial_s)
    except commands.CommandFailed as failure:
        raise errors.TaskFailed(
            "agent_did_not_report", f"the new agent did not report, so version {AGENT_VERSION} stays: {failure}"
        ) from failure
