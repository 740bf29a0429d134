"""The score card as a signed statement, which a publisher of the app attaches to the version in the catalog."""

import datetime
import importlib.metadata

import msgspec
from gpuaas_contract import characters, conformance
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.conformance import ConformanceCheck, ConformanceStatement

from gpuaas_sdk import signatures
from gpuaas_sdk.conformance.verdicts import ScoreCard, Verdict

_REASON_MAX = 1000


def signed(card: ScoreCard, manifest: Manifest, key: signatures.SigningKey, completed_at: datetime.datetime) -> bytes:
    """Return the statement for `gpuaas app attach-card`: a DSSE envelope about the digest of the manifest."""
    digest = conformance.manifest_digest(manifest)
    statement = ConformanceStatement(
        app_slug=manifest.slug,
        version=manifest.version,
        manifest_digest=digest,
        kit_version=importlib.metadata.version("gpuaas-sdk"),
        completed_at=completed_at,
        checks=[_check(verdict) for verdict in card.verdicts],
    )
    return signatures.signed(
        f"{manifest.slug}@{manifest.version}",
        digest.removeprefix("sha256:"),
        key,
        conformance.PREDICATE_TYPE,
        msgspec.to_builtins(statement),
    )


def _check(verdict: Verdict) -> ConformanceCheck:
    reason = characters.clean(verdict.reason)[:_REASON_MAX]
    return ConformanceCheck(name=verdict.check, result=verdict.result, reason=reason)
