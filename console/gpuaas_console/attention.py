"""Pure: what needs attention in a project, worst first, each with its reason and the next step."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuaas_cli.output import clock_time
from gpuaas_contract.artifacts import ArtifactStorage
from gpuaas_contract.catalog import Entitlement
from gpuaas_contract.controllers import Controller
from gpuaas_contract.entitlement_requests import EntitlementRequest
from gpuaas_contract.identity import Me
from gpuaas_contract.instances import Instance, InstanceCount
from gpuaas_contract.operations import Operation
from gpuaas_contract.policy import PolicyLimit

from gpuaas_console.view import link

NOT_SEEN_S = 120
"""A controller asks for work every few seconds. After this time without a request it is reported."""
STUCK_SHARE = 0.5
NEARLY = 0.9
SESSION_ENDS_S = 900
ENDS_SOON = datetime.timedelta(days=14)

UNWELL = ("failed", "degraded")
"""Statuses of instances that need attention."""
Level = Literal["bad", "warn"]
_ORDER = {"bad": 0, "warn": 1}


@dataclass(frozen=True)
class Notice:
    level: Level
    subject: str
    text: str
    action: str = ""
    """What the link does, as text for people."""
    url: str = ""
    """Page of the next step; empty if it is not in the console."""
    project: str = ""
    """Name of the project; empty if it concerns none."""


@dataclass(frozen=True)
class KeyOfAccount:
    """A key of a program that ends, because it was replaced with a grace period."""

    account: str
    key_id: str
    ends_at: datetime.datetime
    last_used_at: datetime.datetime | None


@dataclass(frozen=True)
class SecretOfInstance:
    """A runtime secret of an instance, without its value."""

    instance_id: str
    instance_name: str
    name: str
    issued_at: datetime.datetime
    ends_at: datetime.datetime


@dataclass(frozen=True)
class Margins:
    """What limits a project, and how much of it is used. None and empty: no limit, or not readable."""

    limits: Sequence[PolicyLimit] = ()
    allocations: int | None = None
    storage: ArtifactStorage | None = None
    keys: Sequence[KeyOfAccount] = ()
    secrets: Sequence[SecretOfInstance] = ()


@dataclass(frozen=True)
class Facts:
    """What is known of one project."""

    project_id: str
    unwell: Sequence[Instance]
    """Failed and degraded instances."""
    operations: Mapping[str, Operation]
    """Last operation of the unwell instances, by its id."""
    controllers: Sequence[Controller] | None
    """None: not readable, which is not the same as no controllers."""
    entitlements: Sequence[Entitlement]
    margins: Margins = Margins()
    counts: Sequence[InstanceCount] = ()
    """How many instances there are, by app and status."""
    active: Sequence[Operation] = ()
    """Changes in progress, oldest first."""
    requests: Sequence[EntitlementRequest] = ()
    """Open requests for apps that the person can grant or refuse."""


def notices(facts: Facts, now: datetime.datetime) -> list[Notice]:
    """Return the notices of a project, worst first."""
    rows = [of_instance(facts.project_id, item, facts.operations.get(item.last_operation_id)) for item in facts.unwell]
    rows += [*_slow(facts, now), *_controllers(facts, now)]
    rows += [*_requests(facts), *_quotas(facts), *_limits(facts), *_keys(facts, now), *_secrets(facts, now)]
    return sorted(rows, key=lambda notice: _ORDER[notice.level])


def operates(me: Me) -> bool:
    """Return whether the person operates the platform."""
    return any(binding.scope == "platform" for binding in me.bindings)


def of_server(server: str, ends_at: datetime.datetime | None, now: datetime.datetime) -> list[Notice]:
    """Return the notice about the certificate of the platform's server."""
    if ends_at is None or ends_at > now + ENDS_SOON:
        return []
    text = f"The certificate of {server} ends at {clock_time(ends_at)}. After that, agents and programs refuse it."
    return [Notice("warn", "certificate", f"{text} Replace its files: the server reads them without a restart.")]


def of_person(me: Me, now: datetime.datetime) -> list[Notice]:
    """Return the notices about the person: roles and the session that end soon."""
    result = []
    for binding in me.bindings:
        if binding.expires_at is not None and now < binding.expires_at <= now + ENDS_SOON:
            text = f"Your role {binding.role} in {binding.scope} ends at {clock_time(binding.expires_at)}."
            result.append(Notice("warn", me.name, text, "Your sessions", "/sessions"))
    return result + _of_session(me, now)


def _of_session(me: Me, now: datetime.datetime) -> list[Notice]:
    ends_at = me.session_expires_at
    if ends_at is None or (ends_at - now).total_seconds() > SESSION_ENDS_S:
        return []
    text = f"Your session ends at {clock_time(ends_at)}. Work that runs continues."
    return [Notice("warn", me.name, text, "Sessions", "/sessions")]


def of_instance(project_id: str, instance: Instance, operation: Operation | None) -> Notice:
    """Return the notice about an instance that is not well. `operation` is its last one."""
    page = link("p", project_id, "instances", instance.instance_id)
    if operation is not None and operation.status == "failed":
        url = link("p", project_id, "operations", operation.operation_id)
        why = operation.error.message if operation.error else "no reason was reported"
        at = f" at {clock_time(operation.ended_at)}" if operation.ended_at else ""
        return Notice("bad", instance.name, f"{operation.kind} failed{at}: {why}", "Choose an exit", url)
    level: Level = "bad" if instance.status == "failed" else "warn"
    why = instance.status_reason or "no reason was reported"
    return Notice(level, instance.name, f"{instance.status}: {why}", "Open the instance", page)


def _slow(facts: Facts, now: datetime.datetime) -> list[Notice]:
    """Return the operations that used much of the time until their deadline."""
    result = []
    for operation in facts.active:
        share = used_share(operation, now)
        if share > STUCK_SHARE:
            url = link("p", facts.project_id, "operations", operation.operation_id)
            text = f"{operation.kind} used {share:.0%} of its time and is {operation.status}"
            result.append(Notice("warn", operation.instance_name, text, "Open the operation", url))
    return result


def used_share(operation: Operation, now: datetime.datetime) -> float:
    """Return which part of the time until the deadline is over."""
    whole = (operation.deadline_at - operation.created_at).total_seconds()
    return min(1.0, (now - operation.created_at).total_seconds() / whole) if whole > 0 else 1.0


def _controllers(facts: Facts, now: datetime.datetime) -> list[Notice]:
    if facts.controllers is None:
        return []
    result, url = [], link("p", facts.project_id, "records", "controllers")
    for slug in sorted({item.app_slug for item in facts.counts}):
        seen = [item.last_seen_at for item in facts.controllers if item.app_slug == slug]
        age_s = (now - max(seen)).total_seconds() if seen else None
        if age_s is None:
            text = "no controller of this app ever asked for work here; operations wait for one"
            result.append(Notice("bad", slug, text, "Controllers", url))
        elif age_s > NOT_SEEN_S:
            text = f"its controller was last seen {age_s / 60:.0f} minutes ago; operations wait for it"
            result.append(Notice("bad", slug, text, "Controllers", url))
        else:
            result += _failing([item for item in facts.controllers if item.app_slug == slug], slug, url, now)
    return result


def _failing(controllers: Sequence[Controller], slug: str, url: str, now: datetime.datetime) -> list[Notice]:
    """Return a notice if a controller that runs reports failures. One that ended has nothing to report any more."""
    running = [item for item in controllers if (now - item.last_seen_at).total_seconds() <= NOT_SEEN_S]
    states = [item.state for item in running if item.state is not None and item.state.failures]
    if not states:
        return []
    newest = max((state.failures[0] for state in states), key=lambda failure: failure.observed_at)
    total = sum(state.failures_total for state in states)
    text = f"its controller reports {total} failure{'' if total == 1 else 's'}: {newest.task} {newest.code}"
    return [Notice("warn", slug, text, "Controllers", url)]


def _requests(facts: Facts) -> list[Notice]:
    url = link("p", facts.project_id, "catalog")
    return [
        Notice(
            "warn",
            item.app_slug,
            f"was requested for this project at {clock_time(item.requested_at)}: {item.reason or 'no reason'}",
            "Decide",
            url,
        )
        for item in facts.requests
    ]


def _quotas(facts: Facts) -> list[Notice]:
    result, url = [], link("p", facts.project_id, "records", "entitlements")
    for item in facts.entitlements:
        count = sum(row.instances for row in facts.counts if row.app_slug == item.app_slug)
        if item.instances_max and count >= NEARLY * item.instances_max:
            text = f"{count} of {item.instances_max} instances are used"
            result.append(Notice("warn", item.app_slug, text, "Entitlements", url))
    return result


def _limits(facts: Facts) -> list[Notice]:
    """Return the limits of the policy, and the quota of the organisation, of which little is left."""
    result, url = [], link("p", facts.project_id, "policy")
    storage, used = facts.margins.storage, _used(facts)
    for item in facts.margins.limits:
        count, noun = used.get(item.limit, (None, ""))
        if count is not None and count >= NEARLY * item.max:
            result.append(Notice("warn", noun, f"{count} of {item.max} are used. {item.rule}", "Policy", url))
    if storage is not None and storage.org_bytes_max and storage.org_bytes_used >= NEARLY * storage.org_bytes_max:
        text = f"the organisation uses {storage.org_bytes_used / storage.org_bytes_max:.0%} of its quota"
        result.append(
            Notice("warn", "artifacts", text, "Artifacts", link("p", facts.project_id, "records", "artifacts"))
        )
    return result


def _used(facts: Facts) -> dict[str, tuple[int | None, str]]:
    storage = facts.margins.storage
    return {
        "instances_max": (sum(row.instances for row in facts.counts), "instances"),
        "allocations_max": (facts.margins.allocations, "allocations"),
        "artifact_bytes_max": (None if storage is None else storage.bytes_used, "bytes of artifacts"),
    }


def _keys(facts: Facts, now: datetime.datetime) -> list[Notice]:
    result, url = [], link("p", facts.project_id, "records", "service-accounts")
    for key in facts.margins.keys:
        if now < key.ends_at <= now + ENDS_SOON:
            used = f"last used {clock_time(key.last_used_at)}" if key.last_used_at else "never used"
            text = f"its key {key.key_id} ends at {clock_time(key.ends_at)} ({used}). Programs need the new key."
            result.append(Notice("warn", key.account, text, "Service accounts", url))
    return result


def _secrets(facts: Facts, now: datetime.datetime) -> list[Notice]:
    """Return the secrets that end soon and were made to last. A secret for one operation ends soon from its start."""
    result = []
    for secret in facts.margins.secrets:
        is_lasting = secret.ends_at - secret.issued_at > ENDS_SOON
        if is_lasting and now < secret.ends_at <= now + ENDS_SOON:
            url = link("p", facts.project_id, "instances", secret.instance_id)
            text = f"its secret {secret.name} ends at {clock_time(secret.ends_at)}. Later operations get a new value."
            result.append(Notice("warn", secret.instance_name, text, "Open the instance", url))
    return result
