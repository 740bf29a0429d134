"""`artifact.fetch`: bring content onto this host by its digest. What lies under a digest's name has that digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

from gpuaas_agent import files, wire
from gpuaas_agent.handlers import spec

ARTIFACTS = Path("/var/lib/gpuaas/artifacts")


def fetch(params: dict[str, Any], server: wire.Server, artifacts: Path = ARTIFACTS) -> dict[str, Any]:
    """Once here it is not fetched again; half of it never stands in its place."""
    digest, size_bytes = params["digest"], params["size_bytes"]
    target = artifacts.joinpath(*digest.split(":"))
    if not (target.is_file() and _digest_of(target) == digest):
        files.make_directory(target.parent, 0o755)
        draft = target.with_name(f".{target.name}.new")
        try:
            _download(params, server, draft)
            draft.replace(target)
        finally:
            files.remove(draft)
        files.sync_directory(target.parent)
    return {"path": str(target), "digest": digest, "size_bytes": size_bytes}


def _download(params: dict[str, Any], server: wire.Server, draft: Path) -> None:
    found, length = hashlib.sha256(), 0
    chunks = server.download(f"/api/v1/artifact-content/{params['delivery_id']}", params["token"])
    try:
        with contextlib.closing(chunks), draft.open("wb") as file:
            for chunk in chunks:
                length += len(chunk)
                if length > params["size_bytes"]:
                    raise spec.HandlerError(
                        "artifact_size_mismatch", f"there is more than {params['size_bytes']} bytes"
                    )
                found.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    except wire.Rejected as error:
        if error.retryable:
            raise spec.TryLater(str(error)) from error
        raise spec.HandlerError("artifact_refused", str(error)) from error
    except wire.Unreachable as error:
        raise spec.TryLater(str(error)) from error
    if length < params["size_bytes"]:
        raise spec.TryLater(f"the content ended after {length} of {params['size_bytes']} bytes")
    if f"sha256:{found.hexdigest()}" != params["digest"]:
        raise spec.HandlerError("artifact_digest_mismatch", f"the content is sha256:{found.hexdigest()}")
    draft.chmod(0o644)


def _digest_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(wire.CHUNK_BYTES), b""):
            found.update(chunk)
    return f"sha256:{found.hexdigest()}"
