"""`artifact.fetch`: bring content onto this host by its digest, for one allocation. What lies under a digest's name has
that digest. `allocation.release` takes away what it brought, and does not wait for it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

from gpuaas_agent import files, identity, wire
from gpuaas_agent.handlers import accounts, owners, spec

ARTIFACTS = Path("/var/lib/gpuaas/artifacts")
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
CHANGING = threading.Lock()
"""Held while files come into an allocation's folder or the folder goes: a release runs beside a download."""


def fetch(params: dict[str, Any], session: identity.Session) -> dict[str, Any]:
    """Once here it is not fetched again; half of it never stands in its place."""
    digest, mode = params["digest"], int(params["mode"], 8)
    target = ARTIFACTS.joinpath(params["allocation_id"], *digest.split(":"))
    if not _is_here(target, digest, mode):
        _bring(params, session, target, mode)
    return {"path": str(target), "digest": digest, "size_bytes": params["size_bytes"]}


def remove(allocation_id: str) -> list[str]:
    """Take away all that was brought for an allocation; the files that went."""
    folder = ARTIFACTS / allocation_id
    with CHANGING:
        found = () if folder.is_symlink() else folder.rglob("*")
        removed = sorted(str(path) for path in found if not path.is_dir())
        accounts.remove_tree(folder)
        with contextlib.suppress(OSError):
            ARTIFACTS.rmdir()
            ARTIFACTS.parent.rmdir()
    return removed


def _is_here(target: Path, digest: str, mode: int) -> bool:
    """Whether the content is here already, readable as asked. A release may take it away at any moment."""
    try:
        is_whole = target.is_file() and _digest_of(target) == digest
        if is_whole:
            target.chmod(mode)
    except FileNotFoundError:
        return False
    return is_whole


def _bring(params: dict[str, Any], session: identity.Session, target: Path, mode: int) -> None:
    draft = target.with_name(f".{target.name}.new")
    with CHANGING:
        _check_claim(params)
        files.make_directory(target.parent, 0o755)
        descriptor = os.open(str(draft), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        _download(params, session, descriptor, mode)
        with CHANGING:
            _check_claim(params)
            draft.replace(target)
            files.sync_directory(target.parent)
    finally:
        with CHANGING:
            files.remove(draft)


def _check_claim(params: dict[str, Any]) -> None:
    if not owners.is_of(params["user"], params["allocation_id"]):
        raise spec.HandlerError("allocation_gone", f"this node no longer serves {params['allocation_id']}")


def _download(params: dict[str, Any], session: identity.Session, descriptor: int, mode: int) -> None:
    found, length, size_bytes = hashlib.sha256(), 0, params["size_bytes"]
    chunks = session.download(f"/node/v1/artifact-content/{params['placement_id']}")
    try:
        with contextlib.closing(chunks), os.fdopen(descriptor, "wb") as file:
            # The room is taken first: a disk that would run full refuses at once, and stays usable for the rest.
            os.posix_fallocate(descriptor, 0, size_bytes)
            for chunk in chunks:
                length += len(chunk)
                if length > size_bytes:
                    raise spec.HandlerError("artifact_too_large", f"there is more than {size_bytes} bytes")
                found.update(chunk)
                file.write(chunk)
            os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)
    except wire.WireError as error:
        raise _refused(error) from error
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise spec.HandlerError("disk_full", f"there is no room for {size_bytes} bytes: {error.strerror}") from error
    if length < size_bytes:
        raise spec.TryLater(f"the content ended after {length} of {size_bytes} bytes")
    if f"sha256:{found.hexdigest()}" != params["digest"]:
        raise spec.HandlerError("artifact_digest_mismatch", f"the content is sha256:{found.hexdigest()}")


def _refused(error: wire.WireError) -> Exception:
    """What the platform says of an artifact fails the task in the platform's words; what may pass is tried again."""
    if not isinstance(error, wire.Rejected) or error.retryable:
        return spec.TryLater(str(error))
    return spec.HandlerError(error.code if error.code.startswith("artifact_") else "artifact_refused", str(error))


def _digest_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(wire.CHUNK_BYTES), b""):
            found.update(chunk)
    return f"sha256:{found.hexdigest()}"
