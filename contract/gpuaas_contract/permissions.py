"""Permission keys and the roles that bundle them. Handlers know keys only; roles are data.

`python -m gpuaas_contract.permissions --write docs/reference/permissions.md` writes the page people read.
"""

import sys

from gpuaas_contract import golden

KEYS: dict[str, str] = {
    "identity.org.create": "create an organisation",
    "identity.org.read": "see an organisation",
    "identity.project.create": "create a project in an organisation",
    "identity.project.read": "see a project",
    "identity.project.rename": "rename a project",
    "identity.project.delete": "delete a project that owns nothing",
    "identity.user.create": "create a person",
    "identity.user.read": "see people",
    "identity.user.change": "disable and enable people, set their passwords",
    "identity.binding.read": "see who holds which role",
    "identity.binding.change": "give and take roles, none beyond one's own",
    "identity.operator.appoint": "make somebody else a platform operator",
    "identity.break_glass.create": "take temporary, audited access to a project",
    "identity.break_glass.end": "end temporary access to a project before its time",
    "identity.service_account.create": "create a service account",
    "identity.service_account.read": "see service accounts",
    "identity.service_account.change": "disable and enable a service account",
    "identity.service_account.delete": "delete a service account",
    "identity.service_account_key.create": "make a key for a service account",
    "identity.service_account_key.read": "see which keys a service account has, never their secrets",
    "identity.service_account_key.rotate": "replace a service account's key",
    "identity.service_account_key.revoke": "end a service account's key and its tokens",
    "policy.overlay.read": "see policy overlays and have a verdict explained",
    "policy.overlay.change_global": "change the platform's policy: narrow every organisation",
    "policy.overlay.change_org": "change an organisation's policy: narrow its projects",
    "policy.overlay.change_project": "change a project's policy: narrow the project",
    "catalog.app.read": "see the apps a project may deploy",
    "catalog.version.register": "register an app version",
    "catalog.version.publish": "publish an app version",
    "catalog.version.retire": "deprecate or withdraw an app version",
    "catalog.entitlement.change": "decide which apps a project may deploy",
    "artifacts.artifact.read": "see artifacts, the platform's shared ones included",
    "artifacts.artifact.publish": "publish artifacts: say what they are, upload, attach the signature",
    "artifacts.artifact.verify": "have artifacts verified",
    "artifacts.artifact.promote": "promote verified artifacts into channels",
    "artifacts.artifact.retire": "deprecate and retire artifacts",
    "artifacts.artifact.revoke": "withdraw trust in an artifact for good",
    "artifacts.artifact.deliver": "get a short-lived token to fetch an artifact with",
    "artifacts.artifact.place": "have an artifact put on a machine, for an operation one holds",
    "artifacts.trust_key.read": "see whose signatures on artifacts count",
    "artifacts.trust_key.change": "decide whose signatures on artifacts count",
    "artifacts.shared.read": "see the platform's shared artifacts and trust keys",
    "artifacts.shared.change": "publish and end shared artifacts, decide whose signatures count everywhere",
    "capacity.enrolment.create": "admit a node",
    "capacity.node.read": "see nodes, their tasks and the agent's releases",
    "capacity.node.change": "cordon, drain and classify nodes, have them looked at",
    "capacity.node.retire": "end a node's identity for good",
    "capacity.agent.release": "register releases of the node agent and put them on nodes",
    "capacity.allocation.create": "claim a node for a project",
    "capacity.allocation.read": "see allocations",
    "capacity.allocation.place": "name the node to claim instead of leaving the choice to the platform",
    "capacity.allocation.release": "give a node back",
    "capacity.allocation.release_used": "give a node back although an app instance uses it",
    "capacity.allocation.force_release": "give up an allocation whose node cannot be cleaned",
    "access.machine.connect": "log in to an allocation's machine",
    "access.machine.read": "see who may enter the project's machines",
    "access.machine.set_people": "decide whose own SSH keys are on an allocation's machine",
    "access.machine.revoke": "end somebody's access to a machine, live sessions included",
    "access.credential.create": "hand a private key over for apps to reach hosts with",
    "access.credential.read": "see which credentials a project has, never their keys",
    "access.credential.rotate": "replace a credential's private key",
    "access.credential.revoke": "destroy a credential's private key",
    "access.credential.deliver": "get a credential for an operation, sealed and once (app controllers)",
    "access.secret.issue": "issue runtime secrets for an operation (app controllers)",
    "access.secret.open": "open a delivery of a runtime secret, once (app controllers)",
    "access.secret.read": "see which runtime secrets an instance has, never their values",
    "access.secret.revoke": "destroy a runtime secret",
    "custody.seal.read": "see where secrets are kept and whether they can be opened",
    "custody.seal.open": "unseal the platform's secrets with the passphrase",
    "apps.instance.create": "deploy an app",
    "apps.instance.read": "see app instances, their roles, members and access bundle",
    "apps.instance.stop": "stop an app instance",
    "apps.instance.start": "start a stopped app instance",
    "apps.instance.restart": "restart an app instance",
    "apps.instance.upgrade": "move an app instance to another version",
    "apps.instance.rollback": "go back to the version before",
    "apps.instance.decommission": "tear an app instance down",
    "apps.instance.set_operator": "say whose controller works on an app instance",
    "apps.member.operate": "add, drain, resume, remove and replace members",
    "apps.hold.place": "keep a member from work or removal, and lift one's own holds",
    "apps.role.reset_breaker": "allow adding to a role again after too many failures",
    "apps.operation.read": "see operations",
    "apps.operation.retry": "take a failed operation up again",
    "apps.operation.cancel": "stop an operation and have it undone",
    "apps.operation.compensate": "have a failed operation's half-done work undone",
    "apps.operation.force": "go on against holds, budgets and missing evidence",
    "apps.operation.force_complete": "declare an operation done that nobody can finish",
    "apps.operation.tombstone": "give up members that cannot be recovered",
    "apps.operation.execute": "claim operations and report on them (app controllers)",
    "usage.record.report": "report usage of an app instance (app controllers)",
    "usage.record.read": "see usage and export it",
    "record.event.read": "follow the events of a project or an organisation",
    "record.platform_event.read": "follow the events of the platform as a whole",
    "record.correlation.read": "see what happened under one correlation id",
    "record.audit.read": "read the audit trail",
    "record.audit.read_all": "read the audit trail of every organisation and of the platform",
}

BREAK_GLASS = "break_glass"
"""The role of an admin of the platform who takes access to a project in an emergency."""

_PLATFORM_ONLY_READ = {
    "capacity.node.read",
    "identity.user.read",
    "artifacts.shared.read",
    "custody.seal.read",
    "record.platform_event.read",
}
_ADMIN_READ = {"identity.binding.read", "identity.service_account_key.read"}
_READ = frozenset(key for key in KEYS if key.endswith(".read")) - _PLATFORM_ONLY_READ - _ADMIN_READ
_MEMBER = _READ | {
    "capacity.allocation.create",
    "capacity.allocation.release",
    "access.machine.connect",
    "access.secret.revoke",
    "artifacts.artifact.publish",
    "artifacts.artifact.verify",
    "artifacts.artifact.deliver",
    "apps.instance.create",
    "apps.instance.stop",
    "apps.instance.start",
    "apps.instance.restart",
    "apps.instance.upgrade",
    "apps.instance.rollback",
    "apps.instance.decommission",
    "apps.member.operate",
    "apps.hold.place",
    "apps.role.reset_breaker",
    "apps.operation.retry",
    "apps.operation.cancel",
    "apps.operation.compensate",
}
_LASTING = {
    "identity.project.rename",
    "identity.binding.change",
    "identity.service_account.create",
    "identity.service_account_key.create",
    "identity.service_account_key.rotate",
    "policy.overlay.change_project",
    "artifacts.trust_key.change",
    "access.credential.create",
    "access.credential.rotate",
}
"""What would outlive the one who holds it: temporary access never includes these."""
_AGAINST_SAFETY = {
    "apps.operation.force",
    "apps.operation.force_complete",
    "apps.operation.tombstone",
    "capacity.allocation.release_used",
    "capacity.allocation.force_release",
}
"""What may lose running work or leave something behind: for admins of the project only."""
_ARTIFACT_DECISIONS = {"artifacts.artifact.promote", "artifacts.artifact.retire", "artifacts.artifact.revoke"}
_PROJECT_ADMIN = (
    _MEMBER
    | _ARTIFACT_DECISIONS
    | _ADMIN_READ
    | _LASTING
    | _AGAINST_SAFETY
    | {"apps.instance.set_operator", "access.machine.revoke", "access.credential.revoke"}
    | {"capacity.allocation.place", "access.machine.set_people"}
    | {"identity.service_account.change", "identity.service_account.delete", "identity.service_account_key.revoke"}
)
_TENANT_ADMIN = _PROJECT_ADMIN | {
    "identity.project.create",
    "identity.project.delete",
    "catalog.entitlement.change",
    "policy.overlay.change_org",
}
_CONTROLLER = {
    "apps.operation.execute",
    "artifacts.artifact.place",
    "access.secret.issue",
    "access.secret.open",
    "access.credential.deliver",
    "usage.record.report",
}
_INSIDE_PROJECTS = (
    "apps.",
    "access.",
    "artifacts.artifact.",
    "artifacts.trust_key.",
    "capacity.allocation.",
    "identity.service_account",
    "usage.",
    "record.event.read",
    "record.correlation.read",
    "policy.overlay.change_org",
    "policy.overlay.change_project",
)
"""What belongs to tenants: running the platform does not open it."""

ROLES: dict[str, frozenset[str]] = {
    "platform_admin": frozenset(key for key in KEYS if not key.startswith(_INSIDE_PROJECTS)),
    "platform_ops": frozenset(key for key in KEYS if ".read" in key or key.startswith("capacity.")),
    "tenant_admin": _TENANT_ADMIN,
    "project_admin": _PROJECT_ADMIN,
    "project_member": _MEMBER,
    "viewer": _READ - {"record.audit.read"},
    "service_account": (_MEMBER | _CONTROLLER) - {"record.audit.read"},
    BREAK_GLASS: _PROJECT_ADMIN - _LASTING,
}
"""Role -> keys. A role is bound at the platform, an organisation or a project, and reaches everything below it."""

GRANTABLE: dict[str, tuple[str, ...]] = {
    "platform": ("platform_admin", "platform_ops"),
    "org": ("tenant_admin",),
    "project": ("project_admin", "project_member", "viewer"),
}
"""Level -> roles that can be bound there. `service_account` and `break_glass` are given by the platform only."""

APPOINTED: dict[str, str] = {"platform_ops": "identity.operator.appoint"}
"""Role -> key that lets its holder give the role to others, though the holder lacks some of the role's own keys.
Operators may work on allocations and read everywhere, which admins may not: an admin appoints them, never himself."""


def page() -> str:
    """The reference page: which role holds which key."""
    lines = [_INTRODUCTION, "| permission | allows to | " + " | ".join(f"`{role}`" for role in ROLES) + " |"]
    lines.append("|---|---|" + ":-:|" * len(ROLES))
    for key, meaning in KEYS.items():
        held = " | ".join("●" if key in keys else "" for keys in ROLES.values())
        lines.append(f"| `{key}` | {meaning} | {held} |")
    lines += ["", "## Where a role can be bound", "", "| level | roles |", "|---|---|"]
    lines += [f"| {level} | {', '.join(f'`{role}`' for role in roles)} |" for level, roles in GRANTABLE.items()]
    return "\n".join([*lines, _RULES])


_INTRODUCTION = """# Permissions

Made from `contract/gpuaas_contract/permissions.py`; after a change there: `make contract`.

A route needs one permission. A role bundles permissions and is bound to a person at the platform, at an organisation
or at a project; it reaches everything below. Without any role on the way to a thing, the thing does not exist for you
(404); with a role that lacks the permission, you are told which one (403).
"""

_RULES = """
## Rules

- Nobody can give a role that holds a permission they lack at that place; what they hold for a time only does not
  count. One exception: whoever holds `identity.operator.appoint` makes somebody else `platform_ops`, never themselves.
- Running the platform does not open what runs on it: `platform_admin` has no permission inside projects. Whoever
  creates an organisation becomes its `tenant_admin`.
- `service_account` is the role of every service account in its own project. `break_glass` comes from
  `POST /api/v1/admin/break-glass`: at one project, for an hour at the most, with a reason on the organisation's audit
  trail, and without anything that would outlive it. It also holds the keys that apps gave to admins of the project;
  each audit row of what is done with it carries the reason. Whoever took it ends it when the work is done; so can the
  project's own admins.
- The last `platform_admin`, and the last `tenant_admin` of an organisation, cannot be taken away.
- What is taken away, disabled or expired counts from the next call on.
"""


def main() -> int:
    return golden.main("the roles", lambda _: page())


if __name__ == "__main__":
    sys.exit(main())
