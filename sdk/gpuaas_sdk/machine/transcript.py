"""The tamper-evident record of the commands on machines: every command is a line in the controller's log, and the
platform stores the digest of the lines of each step."""

import datetime
import hashlib
from collections.abc import Iterable

import msgspec
from gpuaas_contract.operations import Transcript


class TranscriptLine(msgspec.Struct, frozen=True):
    """One command and how it ended. Input and output are not stored, because both may contain secrets."""

    machine: str
    argv: tuple[str, ...]
    started_at: datetime.datetime
    duration_ms: int
    output_sha256: str
    """Digest of standard output followed by standard error."""
    exit_status: int | None = None
    """Exit status of the command; None if unknown, because the machine became unreachable or the command was
    stopped."""
    error: str = ""


class TranscriptDigest:
    """Computes the digest of transcript lines without keeping them in memory."""

    def __init__(self) -> None:
        self._lines = hashlib.sha256()
        self._commands = 0

    def add(self, line: TranscriptLine) -> None:
        """Add the next line."""
        self._lines.update(msgspec.json.encode(line) + b"\n")
        self._commands += 1

    def transcript(self) -> Transcript | None:
        """Return the digest of the lines so far; None if there is no line."""
        return Transcript(commands=self._commands, sha256=self._lines.hexdigest()) if self._commands else None


def transcript_of(lines: Iterable[TranscriptLine]) -> Transcript | None:
    """Return the digest of these log lines. If they are complete and unchanged, the platform stores the same one."""
    digest = TranscriptDigest()
    for line in lines:
        digest.add(line)
    return digest.transcript()
