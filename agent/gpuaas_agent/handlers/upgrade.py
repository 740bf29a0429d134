"""`agent.upgrade`: replace the file of this agent by a new agent, after the new one has reported to the platform.

Nothing of the new agent is written as a program or run before a pinned release key has verified its signature. Until
the new agent has reported, this agent keeps its file and sends its heartbeats, so that a crash at any point leaves an
agent that starts.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuaas_agent import AGENT_VERSION, commands, errors, files, identity, log, releases, wire

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

    def pin_command(self) -> str:
        """Return the command by which an operator pins a release key on this node."""
        return " ".join([*self.command(self.path), "pin-release-key", "FILE"])


@dataclasses.dataclass(frozen=True)
class Release:
    """A release of the agent as the platform sent it. Only its digest was checked."""

    content: bytes
    version: str
    signature: str


def upgrade(
    sha256: str, trial_s: int, client: identity.NodeClient, archive: Archive, release_keys: Sequence[str]
) -> dict[str, Any]:
    """Fetch, verify, try and install the agent with this digest, and raise `Replaced`. Return the result if it runs
    already."""
    if archive.sha256() == sha256:
        files.remove(archive.candidate)
        return {"sha256": sha256, "version": AGENT_VERSION}
    if not archive.is_archive():
        raise errors.TaskFailed("agent_not_an_archive", f"this agent runs from {archive.path}, not from a .pyz file")
    if not release_keys:
        raise errors.TaskFailed("agent_no_release_key", _no_release_key(archive))
    release = fetch(sha256, client)
    if not releases.is_signed(release_keys, release.version, sha256, release.signature):
        raise errors.TaskFailed("agent_signature_invalid", _signature_invalid(release, sha256, release_keys))
    try:
        files.write_atomic(archive.candidate, release.content, 0o755)
        _run_trial(trial_s, archive)
        archive.candidate.replace(archive.path)
    finally:
        files.remove(archive.candidate)
    files.sync_directory(archive.path.parent)
    log.info("agent.replaced", sha256=sha256)
    raise errors.Replaced(sha256)


def fetch(sha256: str, client: identity.NodeClient) -> Release:
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
    return Release(content, str(answer.get("version")), str(answer.get("signature")))


def _no_release_key(archive: Archive) -> str:
    return (
        "no release key is pinned on this node, so it installs no release. Copy the public key of your releases to the "
        f"node, run there: {archive.pin_command()}, and restart the agent"
    )


def _signature_invalid(release: Release, sha256: str, release_keys: Sequence[str]) -> str:
    key_ids = ", ".join(releases.key_id(key) for key in release_keys)
    return (
        f"no release key that is pinned on this node ({key_ids}) signed version {release.version[:63]!r} "
        f"with the digest {sha256}; nothing of it was run"
    )


def _run_trial(trial_s: int, archive: Archive) -> None:
    argv = [*archive.command(archive.candidate), "--trial", str(trial_s + TRIAL_ALARM_S)]
    try:
        commands.run(argv, timeout_s=trial_s)
    except commands.CommandFailed as failure:
        raise errors.TaskFailed(
            "agent_did_not_report", f"the new agent did not report, so version {AGENT_VERSION} stays: {failure}"
        ) from failure
