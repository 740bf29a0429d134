"""Verify the conformance statement of an app version with the trust keys of the platform, and attach it as its card."""

import datetime

import msgspec
from gpuaas_contract import characters, conformance, errors
from gpuaas_contract.artifacts import SHARED, Envelope
from gpuaas_contract.catalog import AppVersion
from gpuaas_contract.conformance import AttachedStatement, ConformanceCard, ConformanceStatement
from gpuaas_contract.paths import AppVersionPath

from gpuaas_platform.artifacts import documents, signatures, trust
from gpuaas_platform.call import Call
from gpuaas_platform.catalog import cards
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.kit import db

CLOCK_SKEW = datetime.timedelta(minutes=5)
"""How far the clock of the machine that ran the checks may be ahead."""


class _Signed(msgspec.Struct):
    predicate_type: str = msgspec.field(name="predicateType")
    predicate: ConformanceStatement


async def attach(tx: db.Tx, call: Call[AppVersionPath], envelope: Envelope) -> AttachedStatement:
    version = await catalog.get_version(tx, call)
    digest = conformance.manifest_digest(version.manifest)
    try:
        signed = signatures.signed(envelope, digest, await trust.keys_for(tx, SHARED))
    except errors.ArtifactRefused as refusal:
        raise _refusal(refusal.code, _SIGNATURE.get(type(refusal), refusal.message)) from refusal
    statement = _statement(signed.payload)
    _check(statement, version, digest, call.now)
    card = ConformanceCard(
        conforming=conformance.conforms(statement.checks),
        trusted=True,
        manifest_digest=digest,
        kit_version=statement.kit_version,
        completed_at=statement.completed_at,
        checks=statement.checks,
        signers=signed.signers,
        attached_by=call.caller.actor_id,
        attached_at=call.now,
    )
    call.details.update(manifest_digest=digest, conforming=card.conforming, signers=signed.signers)
    return await cards.attach(tx, call.origin, version, card, envelope)


_SIGNATURE: dict[type[errors.ArtifactRefused], str] = {
    errors.ArtifactSignerUnknown: "No key that is trusted for shared artifacts signed the statement.",
    errors.ArtifactSignerRevoked: "The only trusted key that signed the statement was revoked.",
}


def _statement(payload: bytes) -> ConformanceStatement:
    """Return the signed statement. The envelope hides it from the checks of the edge, so its text is checked here."""
    try:
        signed = documents.decode(payload, _Signed)
    except documents.Unreadable as error:
        raise _refusal("statement", f"The signed payload is no conformance statement: {error}.") from error
    text = msgspec.json.encode(signed)
    if characters.replaced(text) != text:
        raise _refusal("statement", "The statement contains characters that are not allowed.")
    if signed.predicate_type != conformance.PREDICATE_TYPE:
        raise _refusal("statement", f"The predicate type is {signed.predicate_type[:100]}.")
    return signed.predicate


def _check(statement: ConformanceStatement, version: AppVersion, digest: str, now: datetime.datetime) -> None:
    about = (statement.app_slug, statement.version, statement.manifest_digest)
    if about != (version.app_slug, version.version, digest):
        raise _refusal("statement", f"It is about {statement.app_slug} {statement.version} or another manifest of it.")
    if statement.completed_at > now + CLOCK_SKEW:
        raise _refusal("statement", f"Its checks were completed in the future: {statement.completed_at.isoformat()}.")


def _refusal(reason: str, message: str) -> errors.ConformanceRefused:
    return errors.ConformanceRefused(message, details={"reason": reason})
