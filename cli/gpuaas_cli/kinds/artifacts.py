"""Artifacts, and the keys whose signatures on them count."""

import functools
from collections.abc import Sequence
from typing import Any

from gpuaas_contract.artifacts import LIST, HttpSource, OciSource, Source
from gpuaas_contract.trust_keys import TRUST_KEY_LIST

from gpuaas_cli.client import lookup
from gpuaas_cli.client.session import Session
from gpuaas_cli.kinds.kind import Filters, Kind, listed, names
from gpuaas_cli.output import Column, age


async def _artifacts(session: Session, filters: Filters) -> Sequence[Any]:
    found = await session.every(LIST)
    return [one for one in found if filters.everything or one.lifecycle != "retired"]


def _source(source: Source) -> str:
    if isinstance(source, HttpSource):
        return source.url
    return source.reference if isinstance(source, OciSource) else "local"


KINDS: tuple[Kind, ...] = (
    Kind(
        "artifacts",
        names("artifact", "artifacts"),
        _artifacts,
        (
            Column("ARTIFACT", lambda one: one.artifact_id),
            Column("NAME", lambda one: one.name),
            Column("LIFECYCLE", lambda one: one.lifecycle),
            Column("TRUST", lambda one: one.trust),
            Column("CHANNELS", lambda one: ",".join(one.channels)),
            Column("BYTES", lambda one: str(one.size_bytes)),
            Column("AGE", lambda one: age(one.created_at)),
            Column("DIGEST", lambda one: one.digest, wide=True),
            Column("MEDIA_TYPE", lambda one: one.media_type, wide=True),
            Column("SOURCE", lambda one: _source(one.source), wide=True),
            Column("WHY", lambda one: one.reason or one.trust_message),
        ),
        lambda one: one.artifact_id,
        lambda one: (one.artifact_id, one.name, one.digest),
        find=functools.partial(lookup.artifact, shared=False),
    ),
    Kind(
        "trust-keys",
        names("trust-key", "trust-keys"),
        listed(TRUST_KEY_LIST),
        (
            Column("KEY", lambda one: one.trust_key_id),
            Column("STATE", lambda one: "revoked" if one.revoked_at else "trusted"),
            Column("SCOPE", lambda one: one.scope),
            Column("BY", lambda one: one.created_by, wide=True),
            Column("AGE", lambda one: age(one.created_at)),
            Column("FINGERPRINT", lambda one: one.fingerprint),
        ),
        lambda one: one.trust_key_id,
        lambda one: (one.trust_key_id, one.fingerprint),
    ),
)
