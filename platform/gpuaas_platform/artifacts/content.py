"""Store, check and open the content of artifacts, which is uploaded or fetched from its source."""

import datetime

from gpuaas_contract.artifacts import Artifact

from gpuaas_platform.artifacts import fetch, rules
from gpuaas_platform.artifacts.blobs import Blobs, Reading
from gpuaas_platform.call import Call, Site
from gpuaas_platform.kit import clock
from gpuaas_platform.policy import rules as policy_rules

_CHECKED_FIRST_BYTES_MAX = 16 << 20
"""Files up to this size are checked before the first byte is sent, so that a wrong file causes an error response."""


def blobs(site: Site) -> Blobs:
    return Blobs(site.settings.data_dir, site.settings.disk_reserve_bytes)


def kept_since(site: Site, now: datetime.datetime) -> int:
    """Return a time in microseconds. The content of artifacts that ended before it may be deleted."""
    return clock.micros(now) - site.settings.artifact_kept_s * 1_000_000


async def examine(call: Call, artifact: Artifact, layers: policy_rules.Layers, token: str) -> None:
    """Refuse content that differs from what was published: at its source, or in the store if it was uploaded."""
    store = blobs(call.site)
    if rules.is_local(artifact):
        await store.check(artifact.digest, artifact.size_bytes)
        return
    async with fetch.opened(artifact, call.site.settings, layers, token) as chunks:
        await store.take(chunks, artifact.digest, artifact.size_bytes, keep=not call.dry_run)


async def opened(site: Site, artifact: Artifact) -> Reading:
    """Open the stored file. A small file is checked completely first, a larger one while it is read."""
    store, digest, size_bytes = blobs(site), artifact.digest, artifact.size_bytes
    await store.check(digest, size_bytes, whole=size_bytes <= _CHECKED_FIRST_BYTES_MAX)
    return await store.read(digest, size_bytes)
