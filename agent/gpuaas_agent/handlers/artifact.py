"""`artifact.fetch`: download an artifact to this node for one allocation, and check its digest. `artifact.remove`:
delete it again.

A file whose name is a digest always has that digest. `allocation.release` removes the files and does not wait for a
running download.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

from gpuaas_agent import errors, files, identity, wire
from gpuaas_agent.host import accounts, claims

ARTIFACTS = Path("/var/lib/gpuaas/artifacts")
DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
FOLDER_LOCK = threading.Lock()
"""Held while the folder of an allocation changes, because a release and a download can run at the same time."""


def fetch(params: dict[str, Any], client: identity.NodeClient) -> dict[str, Any]:
    """Download the artifact unless the node already has it. An incomplete file never gets the final name."""
    digest, mode = params["digest"], int(params["mode"], 8)
    target = ARTIFACTS.joinpath(params["allocation_id"], *digest.split(":"))
    if not _is_present(target, digest, mode):
        _fetch_into(params, client, target, mode)
    return {"path": str(target), "digest": digest, "size_bytes": params["size_bytes"]}


def unplace(params: dict[str, Any]) -> dict[str, Any]:
    """Delete one artifact of an allocation, and folders that are empty then. It succeeds if the file is not there."""
    target = ARTIFACTS.joinpath(params["allocation_id"], *params["digest"].split(":"))
    with FOLDER_LOCK:
        _check_claim(params)
        # Root of the tenant can put a link here; what it leads to does not belong to the allocation.
        is_linked = any(folder.is_symlink() for folder in list(target.parents)[:2])
        was_present = not is_linked and files.remove(target)
        with contextlib.suppress(OSError):
            for folder in list(target.parents)[:4]:
                folder.rmdir()
    return {"removed": [str(target)] if was_present else []}


def remove(allocation_id: str) -> list[str]:
    """Remove everything that was fetched for an allocation and return the removed files."""
    folder = ARTIFACTS / allocation_id
    with FOLDER_LOCK:
        inside = () if folder.is_symlink() else folder.rglob("*")
        removed = sorted(str(path) for path in inside if not path.is_dir())
        accounts.remove_tree(folder)
        with contextlib.suppress(OSError):
            ARTIFACTS.rmdir()
            ARTIFACTS.parent.rmdir()
    return removed


def _is_present(target: Path, digest: str, mode: int) -> bool:
    """Return whether the complete file exists, and set its mode. A release may remove it at any moment."""
    try:
        is_whole = target.is_file() and _digest_of(target) == digest
        if is_whole:
            target.chmod(mode)
    except FileNotFoundError:
        return False
    return is_whole


def _fetch_into(params: dict[str, Any], client: identity.NodeClient, target: Path, mode: int) -> None:
    draft = target.with_name(f".{target.name}.new")
    with FOLDER_LOCK:
        _check_claim(params)
        files.make_directory(target.parent, 0o755)
        descriptor = os.open(str(draft), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        _download(params, client, descriptor, mode)
        with FOLDER_LOCK:
            _check_claim(params)
            draft.replace(target)
            files.sync_directory(target.parent)
    finally:
        with FOLDER_LOCK:
            files.remove(draft)


def _check_claim(params: dict[str, Any]) -> None:
    if not claims.belongs_to(params["user"], params["allocation_id"]):
        raise errors.TaskFailed("allocation_gone", f"allocation {params['allocation_id']} is no longer on this node")


def _download(params: dict[str, Any], client: identity.NodeClient, descriptor: int, mode: int) -> None:
    digest, length, size_bytes = hashlib.sha256(), 0, params["size_bytes"]
    chunks = client.download(f"/node/v1/artifact-content/{params['placement_id']}")
    try:
        with contextlib.closing(chunks), os.fdopen(descriptor, "wb") as file:
            # Reserve the space first, so that the download fails immediately if the disk has too little space.
            os.posix_fallocate(descriptor, 0, size_bytes)
            for chunk in chunks:
                length += len(chunk)
                if length > size_bytes:
                    raise errors.TaskFailed(
                        "artifact_too_large", f"the received content is longer than {size_bytes} bytes"
                    )
                digest.update(chunk)
                file.write(chunk)
            os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)
    except wire.WireError as error:
        raise _refused(error) from error
    except OSError as error:
        if error.errno not in DISK_FULL_ERRORS:
            raise
        raise errors.TaskFailed(
            "disk_full", f"the disk has no space for {size_bytes} bytes: {error.strerror}"
        ) from error
    if length < size_bytes:
        raise errors.TryLater(f"the download ended after {length} of {size_bytes} bytes")
    if f"sha256:{digest.hexdigest()}" != params["digest"]:
        raise errors.TaskFailed(
            "artifact_digest_mismatch", f"the received content has the digest sha256:{digest.hexdigest()}"
        )


def _refused(error: wire.WireError) -> Exception:
    """Return the error for a failed download: `TryLater` if a retry can help, otherwise `TaskFailed`."""
    if not isinstance(error, wire.Rejected) or error.retryable:
        return errors.TryLater(str(error))
    return errors.TaskFailed(error.code if error.code.startswith("artifact_") else "artifact_refused", str(error))


def _digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(wire.CHUNK_BYTES), b""):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"
