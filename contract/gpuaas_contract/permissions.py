"""Permission keys and the roles that bundle them. Handlers know keys only; roles are data."""

KEYS: dict[str, str] = {
    "identity.org.create": "create an organisation",
    "identity.org.read": "see an organisation",
    "identity.project.create": "create a project in an organisation",
    "identity.project.read": "see a project",
    "identity.service_account.create": "create a service account",
    "identity.service_account.read": "see service accounts",
    "identity.service_account_key.create": "make a key for a service account",
    "catalog.app.read": "see the apps a project may deploy",
    "catalog.version.register": "register an app version",
    "catalog.version.publish": "publish an app version",
    "catalog.entitlement.change": "decide which apps a project may deploy",
    "capacity.enrolment.create": "admit a node",
    "capacity.node.read": "see nodes",
    "capacity.allocation.create": "claim a node for a project",
    "capacity.allocation.read": "see allocations",
    "capacity.allocation.release": "give a node back",
    "access.machine.connect": "log in to an allocation's machine",
    "apps.instance.create": "deploy an app",
    "apps.instance.read": "see app instances, their roles, members and access bundle",
    "apps.instance.decommission": "tear an app instance down",
    "apps.member.operate": "add, drain, resume and remove members",
    "apps.operation.read": "see operations",
    "apps.operation.execute": "claim operations and report on them (app controllers)",
    "record.event.read": "follow events",
    "record.audit.read": "read the audit trail",
}

_READ = frozenset(key for key in KEYS if key.endswith(".read") and key != "capacity.node.read")
_MEMBER = _READ | {
    "capacity.allocation.create",
    "capacity.allocation.release",
    "access.machine.connect",
    "apps.instance.create",
    "apps.instance.decommission",
    "apps.member.operate",
}
_PROJECT_ADMIN = _MEMBER | {"identity.service_account.create", "identity.service_account_key.create"}
_TENANT_ADMIN = _PROJECT_ADMIN | {"identity.project.create", "catalog.entitlement.change"}

ROLES: dict[str, frozenset[str]] = {
    "platform_admin": frozenset(KEYS) - {"apps.operation.execute"},
    "tenant_admin": _TENANT_ADMIN,
    "project_admin": _PROJECT_ADMIN,
    "project_member": _MEMBER,
    "viewer": _READ - {"record.audit.read"},
    "service_account": (_MEMBER | {"apps.operation.execute"}) - {"record.audit.read"},
}
"""Role -> keys. A role is bound at the platform, an organisation or a project, and reaches everything below it."""
