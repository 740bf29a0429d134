"""Conformance cards of app versions. `artifacts.statements` verifies a statement before its card is attached here."""

from collections.abc import Collection

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.artifacts import Envelope
from gpuaas_contract.catalog import AppVersion
from gpuaas_contract.conformance import AttachedStatement, ConformanceCard
from gpuaas_contract.event_types import ConformanceAttached
from gpuaas_contract.paths import AppVersionPath, ProjectAppPath

from gpuaas_platform.call import PLATFORM, Call, Origin
from gpuaas_platform.catalog import service, store
from gpuaas_platform.kit import db, structs
from gpuaas_platform.record import service as record


async def attach(
    tx: db.Tx, origin: Origin, version: AppVersion, card: ConformanceCard, envelope: Envelope
) -> AttachedStatement:
    """Attach the card of a later run. The same statement again changes nothing; an earlier one is refused, so that
    a failed run cannot be hidden behind an older card."""
    present = await store.statement(tx, version.app_version_id)
    if present == envelope and version.conformance is not None:
        return _attached(version, version.conformance, envelope)
    if version.conformance is not None and card.completed_at <= version.conformance.completed_at:
        raise errors.Conflict(
            f"{version.app_slug} {version.version} has a conformance card of a run at "
            f"{version.conformance.completed_at.isoformat()}, which is not earlier.",
            fix=f"Run the checks again: gpuaas app conformance {version.app_slug} --sign KEY",
        )
    await store.keep_statement(tx, version.app_version_id, envelope)
    await _save(tx, origin, version, card)
    return _attached(version, card, envelope)


async def get(reader: db.Reader, call: Call[AppVersionPath]) -> AttachedStatement:
    return await _of(reader, await service.get_version(reader, call))


async def get_in_project(reader: db.Reader, call: Call[ProjectAppPath]) -> AttachedStatement:
    return await _of(reader, await service.get_project_app(reader, call))


async def distrust(tx: db.Tx, origin: Origin, live: Collection[str]) -> None:
    """Mark the cards that no trusted key has signed any more. Called when a trust key of the platform is revoked."""
    for version in await store.versions_with_card(tx):
        card = version.conformance
        if card is not None and card.trusted and set(live).isdisjoint(card.signers):
            await _save(tx, origin, version, msgspec.structs.replace(card, trusted=False))


async def _of(reader: db.Reader, version: AppVersion) -> AttachedStatement:
    envelope = await store.statement(reader, version.app_version_id)
    if envelope is None or version.conformance is None:
        raise errors.NotFound(
            f"{version.app_slug} {version.version} has no conformance card.",
            fix=f"gpuaas app conformance {version.app_slug} --sign KEY writes one for gpuaas app attach-card.",
        )
    return _attached(version, version.conformance, envelope)


def _attached(version: AppVersion, card: ConformanceCard, envelope: Envelope) -> AttachedStatement:
    return AttachedStatement(app_slug=version.app_slug, version=version.version, card=card, envelope=envelope)


async def _save(tx: db.Tx, origin: Origin, version: AppVersion, card: ConformanceCard) -> None:
    await store.VERSIONS.save(tx, msgspec.structs.replace(version, conformance=card))
    payload = structs.pick(ConformanceAttached, card, app_slug=version.app_slug, version=version.version)
    await record.emit(tx, origin, "catalog.conformance.changed", payload, PLATFORM, app_slug=version.app_slug)
