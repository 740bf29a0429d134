"""Which files of the data folder are in a backup: keys, the key of custody, signed heads, content of artifacts."""

import contextlib
import re
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gpuaas_platform.artifacts.blobs import Blobs
from gpuaas_platform.backup.errors import CannotProceed, NotSound
from gpuaas_platform.backup.manifest import Custody, Digest
from gpuaas_platform.custody import key_files
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import keys
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import heads

AUDIT_KEY = f"keys/{keys.AUDIT_FILE}"
_REPLACED = "ssh-authority.pem"
"""The SSH authority of an early release. A restore makes a new authority."""
_SMALL = re.compile(r"keys/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}\.(pem|crt)|custody\.(kek|sealed)")
"""Keys and certificates. Files with other names in the folder are temporary."""
_HEADS = re.compile(r"audit-heads/([A-Za-z0-9_-]{1,100})\.jsonl")
_BLOB = re.compile(r"blobs/sha256/[0-9a-f]{2}/([0-9a-f]{64})")


class HeadsFile(NamedTuple):
    name: str
    path: Path
    size: int
    """Only this many bytes belong to the backup. Heads are only appended, so they do not change."""


def small(data_dir: Path) -> dict[str, bytes]:
    """Return name and content of the key files."""
    paths = [*sorted((data_dir / "keys").glob("*")), *sorted(data_dir.glob("custody.*"))]
    named = {str(path.relative_to(data_dir)): path for path in paths if path.name != _REPLACED}
    contents = {name: path.read_bytes() for name, path in named.items() if _SMALL.fullmatch(name)}
    if AUDIT_KEY not in contents:
        raise CannotProceed(f"there is no platform in {data_dir}", "Name the data folder of the server: --data DATA")
    return contents


def heads_files(data_dir: Path) -> list[HeadsFile]:
    """Return the files of signed heads with their present sizes. Called before the snapshot of the database, so that it
    contains every row that these heads count."""
    folder = heads.folder_in(data_dir)
    paths = [heads.path_of(folder, name) for name in heads.names(folder)]
    return [HeadsFile(str(path.relative_to(data_dir)), path, path.stat().st_size) for path in paths]


def blobs(data_dir: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of the content of all artifacts."""
    store = Blobs(data_dir)
    for digest in sorted(store.digests()):
        path = store.path(digest)
        yield str(path.relative_to(data_dir)), path


@contextlib.contextmanager
def custody_unchanged(settings: Settings) -> Iterator[None]:
    """Delay rotations of custody's key: the file and the database must have the same keys."""
    try:
        with key_files.KeyRing(key_files.chosen(settings)).rotating():
            yield
    except custody.Unavailable as error:
        raise CannotProceed(str(error), "Run the backup again when the rotation is done") from error


def custody_of(names: Container[str], tables: Mapping[str, Digest]) -> Custody:
    """Return where the key of custody is. The authority is a value in custody, also if that is in Vault."""
    if key_files.PLAIN in names:
        return "plain"
    if key_files.SEALED in names:
        return "sealed"
    return "outside" if tables["custody_key"].count or tables["ssh_authority"].count else "unused"


def chain_of(name: str) -> str | None:
    """Return the audit chain whose heads the file has; None for another file."""
    match = _HEADS.fullmatch(name)
    return match[1] if match else None


def blob_digest(name: str) -> str | None:
    """Return the digest of the artifact's content; None for another file."""
    match = _BLOB.fullmatch(name)
    return f"sha256:{match[1]}" if match else None


def check_name(name: str) -> None:
    """Refuse a name in a backup that is none of ours, such as one that leads out of the data folder."""
    if not (_SMALL.fullmatch(name) or _HEADS.fullmatch(name) or _BLOB.fullmatch(name)):
        raise NotSound(f"the backup has an unknown file: {name!r}")
