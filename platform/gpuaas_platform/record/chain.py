"""Pure: the hash chain of audit rows and the signed heads that confirm it. `trail` writes rows with `digest`, `heads`
signs, `verify` passes the rows to a `Walk`, which returns the first error as a `Finding`.

The chain alone shows a changed, deleted or added row. It does not show that the last rows were deleted, or that they
were replaced and all their hashes computed again. A signed head, stored separately from the rows, shows this.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PLATFORM = "platform"
"""Chain of the rows that belong to no organisation."""
GENESIS = "0" * 64
"""The `previous_hash` of the first row."""
_MOVED_MAX = 10_000
"""Largest distance at which the original position of a wrong row is searched, for a better message."""

Kind = Literal["edited", "deleted", "reordered", "inserted", "truncated", "rewritten", "head forged", "head missing"]


@dataclass(frozen=True)
class Finding:
    kind: Kind
    position: int
    message: str


class Row(NamedTuple):
    cursor: int
    position: int
    previous_hash: str
    hash: str
    document: bytes
    project_id: str
    """The first column of `COPIED`."""
    actor_id: str
    action: str
    target: str
    result: str
    correlation_id: str


Columns = tuple[Any, ...]
"""A `Row` as the store returns it. SQLite accepts any type in any column, so the types are not certain."""
COPIED = Row._fields[5:]
"""Fields of a row's document that are copied into columns for searches. Checked too: a changed copy hides a row."""
_COPIES = msgspec.json.Decoder(msgspec.defstruct("Copies", [(column, str) for column in COPIED], frozen=True))


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signed statement of a chain's last row at one time. One line of JSON in the heads file of the chain."""

    chain: str
    position: int
    hash: str
    time: str
    number: int
    """Number of the head in its file, from 1."""
    previous: str
    """SHA-256 of the line before, so that a deleted head is detected."""
    key: str
    """The public key, base64."""
    signature: str = ""

    def signed_bytes(self) -> bytes:
        parts = (self.chain, self.position, self.hash, self.time, self.number, self.previous, self.key)
        return ("gpuaas-audit-head-1\n" + "\n".join(map(str, parts))).encode()


def name_of(org_id: str) -> str:
    return org_id or PLATFORM


def digest(chain: str, position: int, previous_hash: str, document: bytes) -> str:
    return hashlib.sha256(f"gpuaas-audit-1\n{chain}\n{position}\n{previous_hash}\n".encode() + document).hexdigest()


def sign(key: Ed25519PrivateKey, head: Head) -> Head:
    head = msgspec.structs.replace(head, key=public_text(key.public_key()))
    return msgspec.structs.replace(head, signature=base64.b64encode(key.sign(head.signed_bytes())).decode())


def public_text(key: Ed25519PublicKey) -> str:
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return base64.b64encode(raw).decode()


def check_head(head: Head, key: Ed25519PublicKey) -> Finding | None:
    if head.key != public_text(key):
        return Finding("head forged", head.position, "the head is signed with another key than this platform's")
    try:
        key.verify(base64.b64decode(head.signature, validate=True), head.signed_bytes())
    except (InvalidSignature, ValueError):
        return Finding("head forged", head.position, "the signature of the head does not match its content")
    return None


def check_file(chain: str, lines: Sequence[bytes], key: Ed25519PublicKey) -> tuple[list[Head], list[Finding]]:
    """Return the valid heads of one heads file, up to the first error, and that error as a finding."""
    heads: list[Head] = []
    previous = ""
    for number, line in enumerate(lines, 1):
        position = heads[-1].position + 1 if heads else 1
        try:
            head = msgspec.json.decode(line, type=Head)
        except msgspec.DecodeError as error:
            message = f"line {number} of the heads file is no head: {error}"
            return heads, [Finding("head forged", position, message)]
        if head.chain != chain:
            return heads, [Finding("head forged", position, f"line {number} is a head of chain {head.chain}")]
        forged = check_head(head, key)
        if forged is not None:
            return heads, [forged]
        if head.number != number or head.previous != previous:
            message = f"line {number} of the heads file does not follow the line before it: a head was taken out"
            return heads, [Finding("head missing", position, message)]
        heads.append(head)
        previous = line_digest(line)
    return heads, []


def line_digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


@dataclass
class Walk:
    """Checks one chain from its first row. It stops at the first error."""

    chain: str
    heads: Sequence[Head] = ()
    count: int = 0
    position: int = 0
    hash: str = GENESIS
    vouched: int = 0
    """Position of the last signed head that matches the rows."""
    finding: Finding | None = None
    _cursor: int = -1
    _cursor_before: int = -2
    _at: dict[int, list[Head]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for head in self.heads:
            self._at.setdefault(head.position, []).append(head)

    def feed(self, rows: Sequence[Columns]) -> None:
        """Check the next rows. They are in the order of their positions, each with the columns of `Row`.

        Works on plain tuples and does little per row, because this loop takes most of the time of a long verification.
        """
        for index, row in enumerate(rows):
            cursor, position, previous_hash, hash_, document, *_ = row
            if (
                position != self.position + 1
                or previous_hash != self.hash
                or hash_ != digest(self.chain, position, previous_hash, document)
                or cursor <= self._cursor
                or row[5:] != _copied(document)
            ):
                self.finding = self._explain(*_as_rows(rows[index : index + 3]))
                return
            self._cursor_before, self._cursor = self._cursor, cursor
            self.count, self.position, self.hash = self.count + 1, position, hash_
            if position in self._at:
                self.finding = self._ask_heads(position, _as_rows(rows[index + 1 : index + 3]))
                if self.finding is not None:
                    return

    def end(self) -> Finding | None:
        """Call after the last row: a head with a higher position means that rows were deleted. Return the finding."""
        last = max(self._at, default=0)
        if self.finding is None and last > self.position:
            message = (
                f"a signed head of {self._at[last][0].time} counts {last} rows, the last one here is "
                f"{self.position}; nothing vouches for those after {self.vouched}"
            )
            self.finding = Finding("truncated", self.vouched + 1, message)
        return self.finding

    def _ask_heads(self, position: int, following: Sequence[Row]) -> Finding | None:
        denying = next((head for head in self._at[position] if head.hash != self.hash), None)
        if denying is None:
            self.vouched = position
            return None
        if following and following[0].previous_hash != self.hash:
            return self._explain(*following)  # the finding of one row is more precise
        message = (
            f"hashes are valid, but the signed head of {denying.time} differs: "
            f"rows between {self.vouched + 1} and {position} were replaced"
        )
        return Finding("rewritten", self.vouched + 1, message)

    def _explain(self, row: Row, *following: Row) -> Finding:
        expected = self.position + 1
        if row.position < expected:
            return Finding("inserted", row.position, f"there is more than one row at position {row.position}")
        if row.position > expected:
            return Finding("deleted", expected, f"rows {expected} to {row.position - 1} are missing")
        if row.previous_hash == self.hash:
            return self._explain_content(row, following)
        return self._explain_link(row, following)

    def _explain_content(self, row: Row, following: Sequence[Row]) -> Finding:
        if row.hash != digest(self.chain, row.position, self.hash, row.document):
            if following and self._written_at(following[0]) == row.position:
                return Finding(
                    "inserted", row.position, "a row was inserted; the row after it was originally at this position"
                )
            return Finding("edited", row.position, "the row's content does not match its hash")
        if row.cursor <= self._cursor:
            at = self.position if row.cursor > self._cursor_before else row.position
            return Finding("reordered", at, "the row's cursor is not between those of its neighbours")
        return Finding("edited", row.position, "a column differs from the row's document")

    def _explain_link(self, row: Row, following: Sequence[Row]) -> Finding:
        """Return the finding for a row whose `previous_hash` is not the hash of the row before it."""
        position = row.position
        if row.hash == digest(self.chain, position, self.hash, row.document):
            return Finding("edited", position, "the row's previous_hash was changed after it was written")
        written = self._written_at(row)
        if written is None:
            return Finding("edited", position, "the row's content does not match its hash")
        if written < position:
            return Finding(
                "inserted", written, f"a row was inserted; the row at {position} was originally at {written}"
            )
        if written > position:
            gone = following and self._written_at(following[0]) == following[0].position + written - position
            kind: Kind = "deleted" if gone else "reordered"
            return Finding(kind, position, f"the row at {position} was written at {written}")
        # The row is at its original position, but was written after a different row: rows before it were replaced.
        message = f"row {position} was written after another row: rows between {self.vouched + 1} and {position - 1} "
        return Finding("rewritten", self.vouched + 1, message + "were replaced and their hashes computed again")

    def _written_at(self, row: Row) -> int | None:
        """Return the position at which the row was written, because its hash is valid only there; None if not found."""
        for distance in range(_MOVED_MAX):
            for candidate in (row.position + distance, row.position - distance):
                if digest(self.chain, candidate, row.previous_hash, row.document) == row.hash:
                    return candidate
        return None


def _as_rows(rows: Sequence[Columns]) -> list[Row]:
    """Return the audit rows with named columns. A position that is not a number becomes 0."""
    named = [Row(*row) for row in rows]
    return [row if type(row.position) is int else row._replace(position=0) for row in named]


def _copied(document: bytes) -> tuple[str, ...] | None:
    try:
        return msgspec.structs.astuple(_COPIES.decode(document))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
