"""What was done on machines, as a record that cannot be changed unseen: every command is a line of the controller's
log, and the digest of a step's lines goes with the step to the platform."""

import datetime
import hashlib
from collections.abc import Iterable

import msgspec
from gpuaas_contract.operations import Transcript


class TranscriptLine(msgspec.Struct, frozen=True):
    """One command and how it ended. Neither what it read nor what it wrote is kept: both may hold secrets."""

    machine: str
    argv: tuple[str, ...]
    started_at: datetime.datetime
    duration_ms: int
    output_sha256: str
    """Of standard output followed by standard error."""
    exit_status: int | None = None
    """None while nothing is known of the end: the machine went away, or the command was stopped."""
    error: str = ""


class TranscriptDigest:
    """Grows by a line per command; a long step costs no memory."""

    def __init__(self) -> None:
        self._lines = hashlib.sha256()
        self._commands = 0

    def add(self, line: TranscriptLine) -> None:
        self._lines.update(msgspec.json.encode(line) + b"\n")
        self._commands += 1

    def transcript(self) -> Transcript | None:
        """None for a step that touched no machine."""
        return Transcript(commands=self._commands, sha256=self._lines.hexdigest()) if self._commands else None


def transcript_of(lines: Iterable[TranscriptLine]) -> Transcript | None:
    """What the platform has on record if these lines of a log are the whole step, unchanged."""
    digest_of_lines = TranscriptDigest()
    for line in lines:
        digest_of_lines.add(line)
    return digest_of_lines.transcript()
