"""Check a whole backup without restoring it: every digest, the signature, and the audit chains against their heads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpuaas_platform.backup import age, archive, files, manifest, tables
from gpuaas_platform.backup.errors import CannotProceed, NotSound
from gpuaas_platform.kit import keys
from gpuaas_platform.record import chain

Progress = Callable[[str], None]
_DAMAGED = "the backup is not sound: {}"


@dataclass(frozen=True)
class Checked:
    manifest: manifest.Manifest
    signed_by: str
    """The public key that signed the backup. It proves the origin only if it is compared with a copy kept elsewhere."""
    audit_rows: int
    chains: int


def check(path: Path, identities: Sequence[age.Identity], signed_by: str, progress: Progress) -> Checked:
    """Read the whole file; raise `NotSound` at the first error. `signed_by` is the expected key; empty: any key."""
    try:
        with archive.opened(path, identities) as entries:
            contents = _Contents(_header(next(entries, None)), progress)
            for entry in entries:
                contents.take(entry)
            checked = contents.finish()
    except FileNotFoundError as error:
        raise CannotProceed(f"there is no file {path}", "Name the backup: --from FILE") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise NotSound(_DAMAGED.format(error)) from error
    if signed_by and checked.signed_by != signed_by:
        raise NotSound(f"the backup is signed by {checked.signed_by}, not by {signed_by}", "Use another backup")
    return checked


def _header(first: archive.Entry | None) -> manifest.Header:
    if first is None or first.name != manifest.HEADER:
        raise NotSound("the file does not begin with the header of a backup")
    content = first.file.read()
    if msgspec.json.decode(content, type=_Format).format != manifest.FORMAT:
        raise CannotProceed(
            "a newer release made this backup", "Check the backup with the release of gpuaas-platform that made it"
        )
    header = msgspec.json.decode(content, type=manifest.Header)
    tables.check_names(header.columns)
    return header


class _Format(msgspec.Struct):
    format: int


@dataclass
class _Contents:
    """What was read so far. The order of a file: keys and heads, then tables, then artifacts, then the manifest."""

    header: manifest.Header
    progress: Progress
    tables: dict[str, manifest.Running] = field(default_factory=dict)
    files: dict[str, manifest.Digest] = field(default_factory=dict)
    heads: dict[str, list[bytes]] = field(default_factory=dict)
    walks: dict[str, chain.Walk] = field(default_factory=dict)
    audit_key: bytes = b""
    ends: dict[str, bytes] = field(default_factory=dict)
    """The manifest and its signature."""

    def __post_init__(self) -> None:
        self.tables = {name: manifest.Running() for name in self.header.columns}

    def take(self, entry: archive.Entry) -> None:
        folder, _, rest = entry.name.partition("/")
        if entry.name in (manifest.MANIFEST, manifest.SIGNATURE):
            self.ends[entry.name] = entry.file.read()
        elif folder == "tables":
            self._take_rows(rest.partition("/")[0], entry.file.read())
        else:
            files.check_name(entry.name)
            self._take_file(entry)

    def _take_rows(self, table: str, content: bytes) -> None:
        if table not in self.tables:
            raise NotSound(f"the backup has rows of an unknown table: {table!r}")
        self.tables[table].add(content, content.count(b"\n"))
        if table == "audit":
            self._walk(content)
        self.progress(f"table {table}: {self.tables[table].digest().count} rows checked")

    def _walk(self, content: bytes) -> None:
        """Check rows of the audit trail, which are in the order of their cursors, so in each chain in its order."""
        columns, by_chain = self.header.columns["audit"], dict[str, list[chain.Columns]]()
        for row in tables.decoded(content):
            values: dict[str, Any] = dict(zip(columns, row, strict=True))
            values["document"] = str(values["document"]).encode()
            ordered = tuple(values[name] for name in chain.Row._fields)
            by_chain.setdefault(str(values["chain"]), []).append(ordered)
        for name, rows in by_chain.items():
            walk = self._walk_of(name)
            if walk.finding is None:
                walk.feed(rows)

    def _walk_of(self, name: str) -> chain.Walk:
        if name not in self.walks:
            key = keys.parse(self.audit_key, files.AUDIT_KEY).public_key()
            sound, findings = chain.check_file(name, self.heads.get(name, []), key)
            self.walks[name] = chain.Walk(name, sound, finding=findings[0] if findings else None)
        return self.walks[name]

    def _take_file(self, entry: archive.Entry) -> None:
        running, content = manifest.Running(), b""
        name, blob = files.chain_of(entry.name), files.blob_digest(entry.name)
        while part := entry.file.read(archive.CHUNK_BYTES):
            running.add(part, len(part))
            content += part if blob is None else b""
        self.files[entry.name] = digest = running.digest()
        if name is not None:
            self.heads[name] = content.split(b"\n")[:-1]
        elif entry.name == files.AUDIT_KEY:
            self.audit_key = content
        elif blob is not None and blob != f"sha256:{digest.sha256}":
            raise NotSound(_DAMAGED.format(f"{entry.name} has another digest"))
        self.progress(f"{len(self.files)} files checked")

    def finish(self) -> Checked:
        if set(self.ends) != {manifest.MANIFEST, manifest.SIGNATURE}:
            raise NotSound(_DAMAGED.format("its end is missing"))
        stated = msgspec.json.decode(self.ends[manifest.MANIFEST], type=manifest.Manifest)
        signature = msgspec.json.decode(self.ends[manifest.SIGNATURE], type=manifest.Signature)
        manifest.check_signature(self.ends[manifest.MANIFEST], signature)
        present = {name: running.digest() for name, running in self.tables.items()}
        wrong = [*manifest.differences(stated.tables, present), *manifest.differences(stated.files, self.files)]
        wrong += ["the header differs from the manifest"] if stated.header != self.header else []
        for name in self.heads:
            self._walk_of(name)
        for name, walk in self.walks.items():
            finding = walk.end()
            wrong += [f"audit chain {name}: {finding.message}"] if finding else []
        if wrong:
            raise NotSound(_DAMAGED.format("; ".join(wrong[:5])), "Use another backup")
        return Checked(stated, signature.key, sum(walk.count for walk in self.walks.values()), len(self.walks))
