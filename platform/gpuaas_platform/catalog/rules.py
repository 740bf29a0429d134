"""Pure: which versions an instance may get, which permissions a controller gets, whether inputs fit a form, and which
allocations each role gets.

The checks of manifests are in `manifests`."""

import datetime
from collections.abc import Mapping

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.catalog import ActionSpec, AppVersion, Entitlement, Manifest
from gpuaas_contract.entitlement_requests import EntitlementRequest, RequestEntitlement
from gpuaas_contract.lifecycles import AppVersionState, EntitlementRequestState
from gpuaas_contract.permissions import CONTROLLER_KEYS
from gpuaas_contract.policy import PolicyRequirement

from gpuaas_platform.catalog import schemas, versions, words

INPUTS_MAX_BYTES = 64 * 1024
VISIBLE = ("published", "deprecated")


def controller_keys(manifest: Manifest) -> frozenset[str]:
    """Return the permissions that the app's controller needs."""
    return frozenset(manifest.controller.permissions) or CONTROLLER_KEYS | own_keys(manifest)


def own_keys(manifest: Manifest) -> frozenset[str]:
    """Return the permissions that the app declares and gives to service accounts."""
    return frozenset(key for key, declared in manifest.permissions.items() if "service_account" in declared.roles)


def check_slug(manifest: Manifest, app_slug: str) -> None:
    """Refuse the manifest of another app than the path names."""
    if manifest.slug != app_slug:
        raise errors.ValidationFailed(
            f"The manifest is of {manifest.slug}, the path names {app_slug}.",
            details={"field": "slug"},
            fix=f"Register it as a version of {manifest.slug}, or correct `slug` in the manifest.",
        )


def is_conforming(version: AppVersion) -> bool:
    """Return whether the version has a conformance card without failed checks that a trusted key signed."""
    return version.conformance is not None and version.conformance.conforming and version.conformance.trusted


def check_conforming(version: AppVersion, required: PolicyRequirement | None) -> None:
    """Refuse a version without a valid conformance card, if a policy requires one."""
    if required is None or is_conforming(version):
        return
    card, app = version.conformance, f"{version.app_slug} {version.version}"
    why = "has no conformance card"
    if card is not None:
        why = (
            "has failed checks on its conformance card" if card.trusted else "has a card whose signing key was revoked"
        )
    raise errors.PolicyDenied(
        f"{app} {why}: {required.rule}.",
        details={"layer": required.layer, "rule": required.rule, "subject": "app", "value": version.app_version_id},
        fix=f"Choose a version that has one, or ask the app's team: gpuaas app conformance {version.app_slug} "
        f"--sign KEY --card FILE writes a card, gpuaas app attach-card {app} FILE attaches it.",
    )


def moved(version: AppVersion, state: AppVersionState, *, channels: list[str], reason: str) -> AppVersion:
    if not lifecycles.may_move(lifecycles.APP_VERSION, version.state, state):
        raise errors.Conflict(
            f"{version.app_slug} {version.version} is {version.state} and cannot become {state}.",
            details={"state": version.state, "reason": version.state_reason},
            fix=_FIX[version.state],
        )
    return msgspec.structs.replace(version, state=state, channels=channels, state_reason=reason)


_FIX = {
    "registered": "Publish it first, or withdraw it.",
    "withdrawn": "A withdrawn version stays so: raise the version in the manifest, register and publish that.",
}


def check_requestable(entitlement: Entitlement | None, app_slug: str) -> None:
    """Refuse a request for an app that the project may deploy already."""
    if entitlement is not None and entitlement.enabled:
        raise errors.Conflict(
            f"This project may already deploy {app_slug}.",
            fix=f"gpuaas deploy {app_slug} --help; a tenant admin changes the limits: gpuaas app entitle {app_slug}",
        )


def opened(
    present: EntitlementRequest | None, project_id: str, body: RequestEntitlement, *, by: str, now: datetime.datetime
) -> EntitlementRequest:
    """Return the open request, also in place of one that was closed before."""
    if present is not None:
        lifecycles.check_move("An entitlement request", lifecycles.ENTITLEMENT_REQUEST, present.state, "open")
    return EntitlementRequest(
        project_id=project_id,
        app_slug=body.app_slug,
        state="open",
        reason=body.reason.strip(),
        requested_by=by,
        requested_at=now,
    )


def closed(
    request: EntitlementRequest, state: EntitlementRequestState, *, by: str, now: datetime.datetime, reason: str = ""
) -> EntitlementRequest:
    if state not in lifecycles.ENTITLEMENT_REQUEST[request.state]:
        raise errors.Conflict(
            f"The request for {request.app_slug} is {request.state}; only an open one can be {state}.",
            details={"state": request.state},
            fix="gpuaas entitlement requests",
        )
    return msgspec.structs.replace(request, state=state, decided_by=by, decided_at=now, decision_reason=reason)


def admits(entitlement: Entitlement | None, version: AppVersion) -> bool:
    """Return whether the entitlement includes this version. The version's state is not checked."""
    if entitlement is None or not entitlement.enabled or not admits_version(entitlement, version.version):
        return False
    return not entitlement.channels or not set(entitlement.channels).isdisjoint(version.channels)


def admits_any(entitlement: Entitlement | None, version: str) -> bool:
    """Return whether the entitlement includes a version of this number, in any channel."""
    return entitlement is not None and entitlement.enabled and admits_version(entitlement, version)


def admits_version(entitlement: Entitlement, version: str) -> bool:
    return not entitlement.versions or versions.matches(entitlement.versions, version)


def check_upgrade(target: AppVersion, present: str) -> None:
    if target.version == present:
        raise errors.Conflict(
            f"The instance has version {present} already.",
            fix="gpuaas get apps lists the versions that the project may deploy; a version is listed after gpuaas app "
            "publish",
        )
    if not versions.is_newer(target.version, present):
        raise errors.Conflict(
            f"{target.version} is not newer than {present}.",
            fix="Name a newer version; to go back, roll the instance back.",
        )
    allowed = target.manifest.upgrades_from
    if not versions.matches(allowed, present):
        raise errors.Conflict(
            f"{target.app_slug} {target.version} cannot be reached from {present}: it takes upgrades from "
            f"{', '.join(allowed) or 'no version'}.",
            details={"upgrades_from": allowed},
            fix="Upgrade the instance to a version in between first."
            if allowed
            else "Deploy the version as a new instance.",
        )


def check_rollback(present: Manifest, target: AppVersion) -> None:
    """Refuse a target that the running version's manifest does not list. Older manifests cannot list newer versions."""
    if not versions.is_newer(present.version, target.version):
        raise errors.Conflict(
            f"{target.version} is not older than {present.version}.",
            fix="To get a newer version of the app, upgrade the instance.",
        )
    if not versions.matches(present.rollback_to, target.version):
        raise errors.Conflict(
            f"{present.slug} {present.version} cannot go back to {target.version}; it can go back to "
            f"{', '.join(present.rollback_to) or 'no version'}.",
            details={"rollback_to": present.rollback_to},
        )
    if target.state == "withdrawn":
        raise withdrawn(target, "")


def withdrawn(version: AppVersion, instead: str) -> errors.Conflict:
    return errors.Conflict(
        f"{version.app_slug} {version.version} was withdrawn: {version.state_reason or 'no reason was given'}.",
        details={"state": version.state, "reason": version.state_reason, "use": instead},
        fix=f"Take {version.app_slug} {instead}." if instead else "The project may deploy no other version of the app.",
    )


def check_inputs(manifest: Manifest, topology: str, inputs: Mapping[str, object]) -> None:
    if topology not in manifest.topologies:
        problem = words.unknown("topology", topology, manifest.topologies)
        raise errors.ValidationFailed(f"{manifest.display_name}: {problem}.", details={"field": "topology"})
    _check_topology_fields(manifest, topology, inputs)
    fix = f"gpuaas app show {manifest.slug} {manifest.version} shows the form; --set NAME=VALUE gives an input"
    _check_fit("The inputs do not fit the deploy form", manifest.deploy_form, inputs, fix)


def _check_topology_fields(manifest: Manifest, topology: str, inputs: Mapping[str, object]) -> None:
    """Refuse machines in a field that only other topologies use: they would be ignored."""
    used = set(manifest.topologies[topology].values())
    others = {field: name for name, fields in manifest.topologies.items() for field in fields.values()}
    for field, other in others.items():
        if field not in used and inputs.get(field):
            raise errors.ValidationFailed(
                f"The topology {topology} does not use {field}.",
                details={"field": field, "topology": topology},
                fix=f"Leave {field} out, or choose the topology {other}.",
            )


def action_of(manifest: Manifest, name: str) -> ActionSpec:
    spec = next((action for action in manifest.actions if action.name == name), None)
    if spec is None:
        known = [action.name for action in manifest.actions]
        raise errors.NotFound(f"{manifest.display_name}: {words.unknown('action', name, known)}.")
    return spec


def check_action_inputs(action: ActionSpec, inputs: Mapping[str, object], fix: str = "") -> None:
    _check_fit(f"The inputs do not fit the action {action.name}", action.input_schema, inputs, fix)


def placement(manifest: Manifest, topology: str, inputs: Mapping[str, object]) -> dict[str, list[str]]:
    """Return component_key -> allocation ids, from the form fields that the topology names."""
    placed: dict[str, list[str]] = {}
    for component_key, field in manifest.topologies[topology].items():
        value = inputs.get(field, [])
        placed[component_key] = list(value) if isinstance(value, list) else [str(value)]
    check_counts(manifest, topology, {key: len(allocation_ids) for key, allocation_ids in placed.items()})
    for component_key, allocation_ids in placed.items():
        if len(set(allocation_ids)) != len(allocation_ids):
            raise errors.ValidationFailed(f"An allocation is named twice for {component_key}.")
    return placed


def check_counts(manifest: Manifest, topology: str, counts: dict[str, int]) -> None:
    for role in manifest.roles:
        count = counts.get(role.component_key, 0)
        if not role.min <= count <= role.max:
            fits = f"exactly {role.min}" if role.min == role.max else f"{role.min} to {role.max}"
            members = "member" if role.max == 1 else "members"
            field = manifest.topologies[topology].get(role.component_key, "")
            raise errors.ValidationFailed(
                f"{field or topology}: {manifest.display_name} takes {fits} {members} of {role.component_key}, "
                f"not {count}.",
                details={"component_key": role.component_key, "min": role.min, "max": role.max, "asked": count}
                | {"field": field},
            )


def _check_fit(sentence: str, schema: dict[str, object], inputs: Mapping[str, object], fix: str = "") -> None:
    if len(msgspec.json.encode(inputs)) > INPUTS_MAX_BYTES:
        raise errors.ValidationFailed(
            f"The inputs have at most {INPUTS_MAX_BYTES // 1024} KiB.", details={"field": "inputs"}
        )
    misfits = schemas.misfits(schema, inputs)
    if misfits:
        problems = "; ".join(f"{field}: {message}" for field, message in misfits.items())
        raise errors.ValidationFailed(f"{sentence}: {problems}", details={"fields": misfits}, fix=fix)
