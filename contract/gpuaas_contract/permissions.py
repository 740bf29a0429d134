"""Permission keys and the roles that contain them. Handlers use keys only; roles are data.

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
    "identity.binding.change": "give and remove roles, none beyond one's own",
    "identity.operator.appoint": "make another person a platform operator",
    "identity.break_glass.create": "take temporary, audited access to a project",
    "identity.break_glass.end": "end temporary access to a project early",
    "identity.service_account.create": "create a service account",
    "identity.service_account.read": "see service accounts",
    "identity.service_account.change": "disable and enable a service account",
    "identity.service_account.delete": "delete a service account",
    "identity.service_account.bind": "set which apps a service account operates, and its permissions",
    "identity.service_account.accept": "let a service account of the organisation operate its app in a project",
    "identity.service_account.dismiss": "end the access of an organisation's service account to a project",
    "identity.service_account_key.create": "create a key for a service account",
    "identity.service_account_key.read": "see which keys a service account has, never their secrets",
    "identity.service_account_key.rotate": "replace a service account's key",
    "identity.service_account_key.revoke": "revoke a service account's key and its tokens",
    "identity.posix.read": "see the login names, numbers and public keys of a project's people",
    "identity.posix.set": "set the login name and number of a person who has none yet",
    "policy.overlay.read": "see policy overlays and explain decisions",
    "policy.overlay.change_global": "change the platform's policy, which restricts every organisation",
    "policy.overlay.change_org": "change an organisation's policy, which restricts its projects",
    "policy.overlay.change_project": "change a project's policy, which restricts the project",
    "catalog.app.read": "see the apps a project may deploy",
    "catalog.version.register": "register an app version",
    "catalog.version.publish": "publish an app version",
    "catalog.version.retire": "deprecate or withdraw an app version",
    "catalog.conformance.attach": "attach a conformance card to an app version",
    "catalog.entitlement.request": "request that a project may deploy an app",
    "catalog.entitlement.change": "set which apps a project may deploy",
    "artifacts.artifact.read": "see artifacts, the platform's shared ones included",
    "artifacts.artifact.publish": "publish, upload and sign artifacts",
    "artifacts.artifact.verify": "verify artifacts",
    "artifacts.artifact.promote": "promote verified artifacts into channels",
    "artifacts.artifact.retire": "deprecate and retire artifacts",
    "artifacts.artifact.revoke": "revoke artifacts permanently",
    "artifacts.artifact.deliver": "get a short-lived token to download an artifact",
    "artifacts.artifact.place": "copy an artifact to a machine, for an operation one holds",
    "artifacts.trust_key.read": "see which keys are trusted to sign artifacts",
    "artifacts.trust_key.change": "set which keys are trusted to sign artifacts",
    "artifacts.shared.read": "see the platform's shared artifacts and trust keys",
    "artifacts.app.read": "see the shared artifacts of an app",
    "artifacts.app.publish": "publish, sign, verify, promote and retire the shared artifacts of an app",
    "artifacts.shared.change": "publish and retire shared artifacts, set which keys are trusted everywhere",
    "capacity.enrolment.create": "admit a node",
    "capacity.node.read": "see nodes, their tasks and the agent's releases",
    "capacity.node.change": "cordon, drain, classify and inspect nodes",
    "capacity.node.retire": "retire a node permanently",
    "capacity.node.sanitise": "have a node sanitised, or declare that it was",
    "capacity.agent.release": "register, approve and install releases of the node agent",
    "capacity.allocation.create": "claim a node for a project",
    "capacity.allocation.read": "see allocations",
    "capacity.allocation.place": "choose the node to claim",
    "capacity.allocation.release": "release an allocation",
    "capacity.allocation.release_used": "release an allocation that an app instance uses",
    "capacity.allocation.force_release": "give up an allocation whose node cannot be cleaned",
    "access.machine.connect": "log in to an allocation's machine, as oneself",
    "access.machine.root": "log in to an allocation's machine as its user with sudo",
    "access.machine.read": "see who may log in to the project's machines",
    "access.machine.set_people": "set whose SSH keys are installed on an allocation's machine",
    "access.machine.revoke": "end access to a machine, live sessions included",
    "access.credential.create": "store a private key for apps that log in to hosts",
    "access.credential.read": "see which credentials a project has, never their keys",
    "access.credential.rotate": "replace the private key of a stored credential; the old key is destroyed",
    "access.credential.revoke": "destroy the private key of a stored credential, so that apps can no longer use it",
    "access.credential.deliver": "get a credential for an operation, sealed and once (app controllers)",
    "access.secret.issue": "issue runtime secrets for an operation (app controllers)",
    "access.secret.open": "open a delivery of a runtime secret, once (app controllers)",
    "access.secret.read": "see which runtime secrets an instance has, never their values",
    "access.secret.revoke": "destroy a runtime secret",
    "custody.seal.read": "see where secrets are stored and whether they can be read",
    "custody.seal.open": "unseal the platform with the passphrase",
    "apps.instance.create": "deploy an app",
    "apps.instance.read": "see app instances, their roles, members and access bundle",
    "apps.instance.stop": "stop an app instance",
    "apps.instance.start": "start a stopped app instance",
    "apps.instance.restart": "restart an app instance",
    "apps.instance.upgrade": "upgrade an app instance",
    "apps.instance.rollback": "roll an app instance back to the previous version",
    "apps.instance.reconfigure": "change inputs of a running app instance",
    "apps.instance.decommission": "decommission an app instance",
    "apps.instance.set_operator": "set which service account works on an app instance",
    "apps.member.operate": "add, drain, resume, remove, replace and repair members",
    "apps.hold.place": "place holds on members, and lift one's own holds",
    "apps.role.reset_breaker": "allow adding to a role again after too many failures",
    "apps.operation.read": "see operations",
    "apps.operation.retry": "retry a failed operation",
    "apps.operation.cancel": "cancel an operation and undo its work",
    "apps.operation.compensate": "undo the half-done work of a failed operation",
    "apps.operation.force": "ignore holds, disruption budgets and missing evidence",
    "apps.operation.force_complete": "mark an operation as done that no controller can finish",
    "apps.operation.tombstone": "give up members that cannot be recovered",
    "apps.operation.execute": "claim operations and report on them (app controllers)",
    "apps.operation.request": "request repairs and other operations of an instance it looks after (app controllers)",
    "usage.record.report": "report usage of an app instance (app controllers)",
    "usage.record.read": "see usage and export it",
    "record.event.read": "follow the events of a project or an organisation",
    "record.platform_event.read": "follow the events of the platform as a whole",
    "record.correlation.read": "see what is recorded under one correlation id",
    "record.audit.read": "read the audit trail",
    "record.audit.read_all": "read the audit trail of every organisation and of the platform",
}

BREAK_GLASS = "break_glass"
"""The role of a platform admin who takes temporary access to a project in an emergency."""

PUBLISHER = "app_publisher"
"""The role of the team of one app, by its slug: it registers and publishes versions and artifacts of this app only."""

_PLATFORM_ONLY_READ = {
    "capacity.node.read",
    "identity.user.read",
    "artifacts.shared.read",
    "artifacts.app.read",
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
    "catalog.entitlement.request",
    "artifacts.artifact.publish",
    "artifacts.artifact.verify",
    "artifacts.artifact.deliver",
    "apps.instance.create",
    "apps.instance.stop",
    "apps.instance.start",
    "apps.instance.restart",
    "apps.instance.upgrade",
    "apps.instance.rollback",
    "apps.instance.reconfigure",
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
    "identity.service_account.accept",
    "identity.service_account_key.create",
    "identity.service_account_key.rotate",
    "policy.overlay.change_project",
    "artifacts.trust_key.change",
    "access.credential.create",
    "access.credential.rotate",
}
"""Permissions whose effects outlive temporary access: it never includes them."""
_AGAINST_SAFETY = {
    "apps.operation.force",
    "apps.operation.force_complete",
    "apps.operation.tombstone",
    "capacity.allocation.release_used",
    "capacity.allocation.force_release",
}
"""Permissions that may lose running work or leave something behind: for admins of the project only."""
_ARTIFACT_DECISIONS = {"artifacts.artifact.promote", "artifacts.artifact.retire", "artifacts.artifact.revoke"}
_PROJECT_ADMIN = (
    _MEMBER
    | _ARTIFACT_DECISIONS
    | _ADMIN_READ
    | _LASTING
    | _AGAINST_SAFETY
    | {"apps.instance.set_operator", "access.machine.revoke", "access.credential.revoke"}
    | {"capacity.allocation.place", "access.machine.root", "access.machine.set_people"}
    | {"identity.service_account.change", "identity.service_account.delete", "identity.service_account_key.revoke"}
    | {"identity.service_account.dismiss"}
)
_TENANT_ADMIN = _PROJECT_ADMIN | {
    "identity.project.create",
    "identity.project.delete",
    "identity.posix.set",
    "identity.service_account.bind",
    "catalog.entitlement.change",
    "policy.overlay.change_org",
}
_CONTROLLER = {
    "apps.operation.execute",
    "apps.operation.request",
    "artifacts.artifact.place",
    "access.secret.issue",
    "access.secret.open",
    "access.credential.deliver",
    "usage.record.report",
}
EXECUTE = "apps.operation.execute"
"""The permission without which a controller can claim nothing."""
CONTROLLER_KEYS: frozenset[str] = frozenset(
    _CONTROLLER
    | {
        "access.machine.connect",
        "apps.instance.read",
        "apps.operation.read",
        "artifacts.artifact.deliver",
        "artifacts.artifact.read",
        "capacity.allocation.read",
        "catalog.app.read",
        "identity.posix.read",
        "identity.project.read",
        "record.event.read",
    }
)
"""Permissions of an app's controller, if the app's manifest does not list its own."""
PROGRAM_KEYS: frozenset[str] = _MEMBER - {"record.audit.read", "catalog.entitlement.request"}
"""Permissions of a service account that operates no app."""
_PUBLISHER = {
    "catalog.version.register",
    "catalog.version.publish",
    "catalog.version.retire",
    "catalog.conformance.attach",
    "artifacts.app.read",
    "artifacts.app.publish",
}
_INSIDE_PROJECTS = (
    "apps.",
    "access.",
    "artifacts.artifact.",
    "artifacts.trust_key.",
    "capacity.allocation.",
    "identity.posix.",
    "identity.service_account",
    "usage.",
    "record.event.read",
    "record.correlation.read",
    "policy.overlay.change_org",
    "policy.overlay.change_project",
)
"""Permissions inside projects, which belong to tenants: admins of the platform do not have them."""

ROLES: dict[str, frozenset[str]] = {
    "platform_admin": frozenset(key for key in KEYS if not key.startswith(_INSIDE_PROJECTS)),
    "platform_ops": frozenset(key for key in KEYS if ".read" in key or key.startswith("capacity.")),
    PUBLISHER: frozenset(_PUBLISHER),
    "tenant_admin": _TENANT_ADMIN,
    "project_admin": _PROJECT_ADMIN,
    "project_member": _MEMBER,
    "viewer": _READ - {"record.audit.read"},
    "service_account": PROGRAM_KEYS | _CONTROLLER,
    BREAK_GLASS: _PROJECT_ADMIN - _LASTING,
}
"""Role -> keys. A role is given on the platform, for an app, in an organisation or a project, and applies to everything
below."""

GRANTABLE: dict[str, tuple[str, ...]] = {
    "platform": ("platform_admin", "platform_ops"),
    "app": (PUBLISHER,),
    "org": ("tenant_admin",),
    "project": ("project_admin", "project_member", "viewer"),
}
"""Level -> roles that can be given there. `service_account` and `break_glass` are given by the platform only."""

APPOINTED: dict[str, str] = {"platform_ops": "identity.operator.appoint"}
"""Role -> key that lets its holder give the role to others, although the holder does not have all its permissions.
Operators may work on allocations and read everywhere, which admins may not. An admin appoints other people only."""


def page() -> str:
    """Return the reference page: which role has which permission."""
    columns = {**{f"`{role}`": keys for role, keys in ROLES.items()}, "controller": CONTROLLER_KEYS}
    lines = [_INTRODUCTION, "| permission | allows to | " + " | ".join(columns) + " |"]
    lines.append("|---|---|" + ":-:|" * len(columns))
    for key, meaning in KEYS.items():
        held = " | ".join("●" if key in keys else "" for keys in columns.values())
        lines.append(f"| `{key}` | {meaning} | {held} |")
    lines += ["", "## Where a role can be given", "", "| level | roles |", "|---|---|"]
    lines += [f"| {level} | {', '.join(f'`{role}`' for role in roles)} |" for level, roles in GRANTABLE.items()]
    return "\n".join([*lines, _RULES])


_INTRODUCTION = """# Permissions

Made from `contract/gpuaas_contract/permissions.py`; after a change there: `make contract`.

A route needs one permission. A role is a set of permissions. A person has a role on the platform, for an app, in an
organisation or in a project; the role applies to everything below. Without a role there, a resource does not exist for
you (404). With a role that does not have the permission, the answer names the permission (403).
"""

_RULES = """
## Rules

- You cannot give a role with a permission that you do not have there; permissions from temporary access do not count.
  One exception: a holder of `identity.operator.appoint` can make another person `platform_ops`, never themselves.
- Running the platform gives no access to what runs on it: `platform_admin` has no permission inside projects. The
  request that creates an organisation names its first `tenant_admin`; its creator gets no role in it.
- `app_publisher` is given for one app, by its slug, also before the first version is registered. Its holder registers,
  publishes and retires versions of that app and publishes its shared artifacts. Which keys are trusted, and which
  projects may deploy the app, others decide. Service accounts cannot have the role.
- `service_account` is the role of every service account in its own project. An account can use only the permissions of
  this role that it was given. An account that operates apps gets those that the apps' manifests list in
  `controller.permissions`. The column `controller` shows those of an app that lists none. An account without an app
  gets those of a `project_member`, and can claim no operation.
- A service account of an organisation has the role `service_account` only in projects of the organisation that accept
  it and have an enabled entitlement for its one app.
- `break_glass` comes from
  `POST /api/v1/admin/break-glass`: in one project, for at most an hour, with a reason in the organisation's audit
  trail, and without permissions whose effects outlive it. It also has the keys that apps give to admins of the project.
  Each audit row of a change made with it has the reason. The person who took it ends it when the work is done; so can
  the project's own admins.
- The last `platform_admin`, and the last `tenant_admin` of an organisation, cannot be removed.
- A role that is removed, disabled or expired has no effect from the next request on.
"""


def main() -> int:
    return golden.main("the roles", lambda _: page())


if __name__ == "__main__":
    sys.exit(main())
