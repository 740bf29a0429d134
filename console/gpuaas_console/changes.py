"""Pure: changes that are not about an instance, one row each: the endpoint, the list on which people find it, and the
command of the command line. Fields and help come from the request of the endpoint."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from gpuaas_contract import (
    artifacts,
    bindings,
    capacity,
    catalog,
    credentials,
    custody,
    identity,
    meanings,
    org_accounts,
    policy,
    trust_keys,
    users,
)
from gpuaas_contract import entitlement_requests as requests
from gpuaas_contract.access import GRANT_REVOKE
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.instances import BREAKER_RESET
from gpuaas_contract.permissions import GRANTABLE
from gpuaas_contract.wire import NoBody

from gpuaas_console import view

_PLACE = ("project_id", "org_id", "instance_id")
"""Path parameters of where a change is made."""
_IN_PATH = re.compile(r"{(\w+)}")


@dataclass(frozen=True)
class Change:
    label: str
    endpoint: AnyEndpoint
    words: str
    """The command of the command line, without `gpuaas`."""
    of: str = ""
    """The list on which it is offered: a kind of `gpuaas get`. Empty: another page links to it."""
    key: str = ""
    """The attribute of the row with the value of `target`, if it has another name; also the name of what was made."""
    states: str = ""
    """States of a row in which it is offered, with the attribute: `state active`; empty: in all."""
    arguments: str = ""
    """Fields that the command takes as arguments, in their order."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Field -> option of the command, where it has another name."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Values that people do not choose here."""
    extra: tuple[str, ...] = ()
    """Further words of the command."""
    hidden: str = ""
    """Fields that are left at their default."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stdin: str = ""
    """A field whose value the command reads from stdin; `*`: the whole request."""
    named: bool = False
    """People name the target in the form, because it does not exist yet."""
    typed: bool = False
    """People type the target: the change ends or removes something."""
    reads: AnyEndpoint | None = None
    """What is shown above the form. `present` takes the present values from it, because the request replaces all."""
    checked: bool = True
    """Whether a check is offered. A check by the platform must be able to find what is wrong."""
    next: str = ""
    """What to do after it, with fields of the answer in braces."""

    @property
    def only(self) -> list[str]:
        """The fields that people fill in."""
        left_out = {*self.hidden.split(), *self.fixed}
        return [name for name in self.endpoint.request.__struct_fields__ if name not in left_out]

    @property
    def target(self) -> str:
        """The path parameter that names what is changed; empty: it makes something new."""
        return next((name for name in self._names if name not in _PLACE), "")

    @property
    def within(self) -> str:
        """The path parameter of the instance to which the target belongs; its page links to the change."""
        return _PLACE[-1] if _PLACE[-1] in self._names else ""

    @property
    def is_of_org(self) -> bool:
        return "org_id" in self._names

    @property
    def _names(self) -> list[str]:
        return _IN_PATH.findall(self.endpoint.path)

    def place(self, project: str, org: str, within: str = "") -> dict[str, str]:
        """Return the path parameters of where the change is made: organisation, project and instance; often none."""
        values = zip(_PLACE, (project, org, within), strict=True)
        return {name: value for name, value in values if name in self._names}

    def fits(self, row: Any) -> bool:
        attribute, _, states = self.states.partition(" ")
        return not attribute or str(getattr(row, attribute)) in states.split()

    def value_of(self, row: Any) -> str:
        return str(getattr(row, self.key or self.target))


LABELS = {
    "user_id": "Person, by name or id",
    "app_slug": "App",
    "sku": "SKU",
    "skus": "SKUs",
    "ttl_s": "Valid for, in seconds",
    "public_key_pem": "Public key in PEM form",
    "allocations_max": "Most allocations",
    "instances_max": "Most instances",
    "members_max": "Most members",
    "members_per_instance_max": "Most members of an instance",
    "artifact_bytes_max": "Most bytes of artifacts",
}
"""Field -> label, where its name is no good one."""
_TOKEN = "source_token"  # noqa: S105 - the name of a field
_JOIN = (
    "Install the agent on the machine and write /etc/gpuaas/agent.json, readable by root only: "
    '{{"server": "ADDRESS OF THE PLATFORM", "token": "{token}", "name": "{name}"}}; '
    "over TLS also the ca_sha256 below. Then: systemctl restart gpuaas-agent"
)
CHANGES: dict[str, Change] = {
    "request-app": Change(
        "Request an app",
        requests.ENTITLEMENT_REQUEST_CREATE,
        "entitlement request",
        "app-requests",
        arguments="app_slug",
    ),
    "entitle-app": Change(
        "Let the project deploy it",
        catalog.ENTITLEMENT_SET,
        "app entitle",
        "app-offers",
        states="entitled False",
        fixed={"enabled": True},
        reads=catalog.ENTITLEMENT_GET,
    ),
    "stop-app": Change(
        "Stop new deploys",
        catalog.ENTITLEMENT_SET,
        "app entitle",
        "entitlements",
        states="enabled True",
        fixed={"enabled": False},
        extra=("--off",),
        typed=True,
        reads=catalog.ENTITLEMENT_GET,
    ),
    "refuse-app": Change(
        "Refuse", requests.ENTITLEMENT_REQUEST_REFUSE, "entitlement refuse", "app-requests", states="state open"
    ),
    "enrol-node": Change(
        "Enrol a node", capacity.ENROLMENT_CREATE, "node token", "nodes", arguments="name", next=_JOIN
    ),
    "cordon-node": Change("Cordon", capacity.NODE_CORDON, "node cordon", "nodes", "name", "admin_state active"),
    "uncordon-node": Change(
        "Uncordon", capacity.NODE_UNCORDON, "node uncordon", "nodes", "name", "admin_state cordoned draining"
    ),
    "retire-node": Change(
        "Retire",
        capacity.NODE_RETIRE,
        "node retire",
        "nodes",
        "name",
        "admin_state active cordoned draining",
        typed=True,
    ),
    "request-allocation": Change(
        "Request machines",
        capacity.ALLOCATION_CREATE,
        "allocation request",
        "allocations",
        "node_name",
        flags={"node_name": "--node"},
        hidden="scheduler_type integration_metadata",
        next="The machines are prepared now; an allocation is active when its machine is ready.",
    ),
    "release-allocation": Change(
        "Release",
        capacity.ALLOCATION_RELEASE,
        "allocation release",
        "allocations",
        "node_name",
        "status provisioning active failed release_failed",
        typed=True,
    ),
    "create-user": Change(
        "Create a person", users.USER_CREATE, "user create", "users", arguments="name", hidden="password"
    ),
    "grant-platform-role": Change(
        "Give a role on the platform",
        bindings.PLATFORM_BINDING_CREATE,
        "binding grant",
        "users",
        arguments="user_id role",
        choices={"role": GRANTABLE["platform"]},
        extra=("--platform",),
    ),
    "disable-user": Change("Disable", users.USER_DISABLE, "user disable", "users", "name", "state active", typed=True),
    "enable-user": Change("Enable", users.USER_ENABLE, "user enable", "users", "name", "state disabled"),
    "grant-role": Change(
        "Give a role",
        bindings.PROJECT_BINDING_CREATE,
        "binding grant",
        "bindings",
        arguments="user_id role",
        choices={"role": GRANTABLE["project"]},
    ),
    "revoke-role": Change("Take away", bindings.PROJECT_BINDING_DELETE, "binding revoke", "bindings", typed=True),
    "create-account": Change(
        "Create a service account",
        identity.SERVICE_ACCOUNT_CREATE,
        "service-account create",
        "service-accounts",
        arguments="name",
        flags={"apps": "--app", "permissions": "--permission"},
    ),
    "make-key": Change(
        "Make a key",
        identity.SERVICE_ACCOUNT_KEY_CREATE,
        "service-account key",
        "service-accounts",
        "name",
        "state active",
        extra=("--key-file", "-"),
        next="Store the secret now: it is shown once, and the platform keeps no copy.",
    ),
    "disable-account": Change(
        "Disable",
        identity.SERVICE_ACCOUNT_DISABLE,
        "service-account disable",
        "service-accounts",
        "name",
        "state active",
        typed=True,
    ),
    "enable-account": Change(
        "Enable",
        identity.SERVICE_ACCOUNT_ENABLE,
        "service-account enable",
        "service-accounts",
        "name",
        "state disabled",
    ),
    "delete-account": Change(
        "Delete", identity.SERVICE_ACCOUNT_DELETE, "service-account delete", "service-accounts", "name", typed=True
    ),
    "accept-account": Change(
        "Accept an account", org_accounts.ACCEPT, "service-account accept", "accepted-accounts", named=True
    ),
    "dismiss-account": Change(
        "Dismiss", org_accounts.DISMISS, "service-account dismiss", "accepted-accounts", "name", typed=True
    ),
    "revoke-credential": Change(
        "Revoke", credentials.CREDENTIAL_REVOKE, "credential revoke", "credentials", "name", "state active", typed=True
    ),
    "revoke-grant": Change("End", GRANT_REVOKE, "grant revoke", "grants", states="state active", typed=True),
    "verify-artifact": Change(
        "Verify", artifacts.VERIFY, "artifact verify", "artifacts", states="lifecycle published promoted", hidden=_TOKEN
    ),
    "promote-artifact": Change(
        "Promote", artifacts.PROMOTE, "artifact promote", "artifacts", states="trust verified", hidden=_TOKEN
    ),
    "retire-artifact": Change(
        "Retire",
        artifacts.RETIRE,
        "artifact retire",
        "artifacts",
        states="lifecycle published promoted deprecated",
        typed=True,
    ),
    "revoke-artifact": Change(
        "Revoke",
        artifacts.REVOKE,
        "artifact revoke",
        "artifacts",
        states="trust unverified verified failed_verification",
        typed=True,
    ),
    "trust-key": Change(
        "Trust a key",
        trust_keys.TRUST_KEY_PUT,
        "artifact trust add",
        "trust-keys",
        arguments="public_key_pem",
        stdin="public_key_pem",
        named=True,
    ),
    "revoke-key": Change(
        "Revoke",
        trust_keys.TRUST_KEY_REVOKE,
        "artifact trust revoke",
        "trust-keys",
        states="revoked_at None",
        typed=True,
    ),
    "reset-breaker": Change("Allow adding again", BREAKER_RESET, "role reset-breaker"),
    "set-policy": Change(
        "Change the policy of the project", policy.PROJECT_SET, "policy set -", stdin="*", reads=policy.PROJECT_GET
    ),
    "set-org-policy": Change(
        "Change the policy of the organisation", policy.ORG_SET, "policy set -", stdin="*", reads=policy.ORG_GET
    ),
    "set-platform-policy": Change(
        "Change the policy of the platform",
        policy.GLOBAL_SET,
        "policy set -",
        stdin="*",
        extra=("--platform",),
        reads=policy.GLOBAL_GET,
    ),
    "unseal": Change(
        "Unseal the server",
        custody.UNSEAL,
        "custody unseal",
        stdin="passphrase",
        reads=custody.CUSTODY_GET,
        checked=False,
    ),
}


def schema(request: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a request, without references, and with the texts of the contract."""
    if request is NoBody:
        return {"properties": {}}
    (form,), parts = msgspec.json.schema_components([request], ref_template="{name}")
    whole = parts[form["$ref"]]
    texts, secrets = meanings.of(request), _secrets(request)
    properties = {
        name: {
            **_plain(shape, parts),
            **({"title": LABELS[name]} if name in LABELS else {}),
            "description": texts.get(name, ""),
            "x-secret": name in secrets,
        }
        for name, shape in whole["properties"].items()
    }
    return {"properties": properties, "required": whole.get("required", [])}


def _secrets(request: type[msgspec.Struct]) -> set[str]:
    fields = msgspec.inspect.type_info(request).fields  # type: ignore[attr-defined]
    return {item.name for item in fields if (getattr(item.type, "extra", None) or {}).get("secret")}


def _plain(shape: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without references. Of `X or none` it is X: an empty field is none."""
    if "$ref" in shape:  # the title of a struct is the name of its class
        return {name: value for name, value in _plain(parts[shape["$ref"]], parts).items() if name != "title"}
    options = [item for item in shape.get("anyOf", []) if item.get("type") != "null"]
    rest = {name: value for name, value in shape.items() if name not in ("anyOf", "default") or value not in ([], None)}
    return {**rest, **(_plain(options[0], parts) if options else {})}


def present(change: Change, answer: Any) -> dict[str, Any]:
    """Return the present values of the fields that people fill in, from what `reads` answered."""
    values = msgspec.to_builtins(getattr(answer, "overlay", answer)) or {}
    return {name: values[name] for name in change.only if values.get(name) is not None}


def line(
    change: Change, target: str, body: Mapping[str, Any], etag: str, project: str, org: str = "", within: str = ""
) -> tuple[list[str], str]:
    """Return the words of the command line for the same request, and what it reads from stdin."""
    words, given = change.words.split(), {name: body[name] for name in change.only if name in body}
    stdin = ""
    if change.stdin == "*":
        stdin, given = msgspec.json.encode(given).decode(), {}
    elif change.stdin:
        # The value of a secret is not shown: people type it.
        stdin = given.pop(change.stdin, change.stdin.upper())
    arguments = ([within] if change.within else []) + ([target] if change.target else [])
    for name in change.arguments.split():
        arguments.append("-" if name == change.stdin else str(given.pop(name, name.upper())))
    options = _options(change, given)
    options += ["--if-match", etag] if change.endpoint.guarded and etag else []
    options += [
        word for key, name in change.place(project, org).items() if key in _OPTIONS for word in (_OPTIONS[key], name)
    ]
    return view.command(words, arguments, options), stdin


_OPTIONS = {"project_id": "--project", "org_id": "--org"}


def _options(change: Change, given: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in given.items():
        option = change.flags.get(name, "--" + name.replace("_", "-"))
        words += view.options(option, *map(str, value if isinstance(value, list) else [value]))
    return [*words, *change.extra]
