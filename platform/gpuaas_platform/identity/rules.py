"""Pure rules: which targets a permission applies to, who may give which role, and which names are valid."""

import functools
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, Protocol, TypeVar

from gpuaas_contract import errors
from gpuaas_contract.identity import Binding, ServiceAccount
from gpuaas_contract.permissions import APPOINTED, GRANTABLE, ROLES

Verdict = Literal["allowed", "denied", "hidden"]
Level = Literal["platform", "app", "org", "project"]

Account = TypeVar("Account", bound="NamedAccount")

NAME_LENGTH_MAX = 63
_NAME = re.compile(r"(?=.*[A-Za-z0-9])[A-Za-z0-9_-]{1,63}")
_USER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,62}")
ALWAYS_HELD = ("platform_admin", "tenant_admin")
"""Roles whose last holder cannot lose them: without a holder, no one could give roles there any more."""


def decide(bindings: Iterable[Binding], permission: str | Collection[str], scopes: Sequence[str]) -> Verdict:
    """Decide whether the role bindings give a permission at a target. It is given by name or by the roles that have it.

    `scopes` are the platform, the target's organisation and its project. A role binding in any of them applies. For a
    caller with none, the verdict is "hidden", not "denied": the response must not reveal that the target exists."""
    roles = holders(permission) if isinstance(permission, str) else permission
    reaching = [binding for binding in bindings if binding.scope in scopes]
    if any(binding.role in roles for binding in reaching):
        return "allowed"
    return "denied" if reaching else "hidden"


@functools.lru_cache(1024)
def holders(permission: str) -> frozenset[str]:
    """Return the roles that contain a permission of the platform."""
    return frozenset(role for role, keys in ROLES.items() if permission in keys)


def why_not_grant(
    bindings: Iterable[Binding], role: str, level: Level, scopes: Sequence[str], *, to_self: bool
) -> str | None:
    """Return why the caller may not give the role, or None if they may. They can give only permissions that they have.

    Temporary role bindings do not count: to pass them on would make them permanent. Appointed roles are an exception:
    they may contain more permissions than the caller has. So callers cannot give them to themselves.
    """
    if role not in GRANTABLE[level]:
        return f"At this level the roles are {', '.join(GRANTABLE[level])}."
    lasting = (binding.role for binding in bindings if binding.scope in scopes and binding.expires_at is None)
    held = {key for held_role in lasting for key in ROLES.get(held_role, ())}
    lacking = sorted(ROLES[role] - held)
    if not lacking:
        return None
    if APPOINTED.get(role) in held:
        return "You cannot appoint yourself; ask another admin." if to_self else None
    return f"The role holds permissions that you lack here: {', '.join(lacking)}."


def roles_of_account(account: ServiceAccount, accepting: Iterable[str]) -> tuple[Binding, ...]:
    """Return the roles of a service account: in its project or, if it belongs to an organisation, in the projects that
    accept it."""
    scopes = [account.project_id] if account.project_id else sorted(accepting)
    return tuple(Binding(role="service_account", scope=scope) for scope in scopes)


def check_org_apps(apps: Collection[str], present: Collection[str] | None = None) -> None:
    """Refuse an account of an organisation without exactly one app, or with another one than it has. Projects accept
    the account for this app."""
    if present is not None and set(apps) != set(present):
        raise errors.ValidationFailed(
            f"The account operates {', '.join(present)}, and this never changes: projects accepted it for this app.",
            details={"field": "apps"},
            fix="Create another service account of the organisation for the other app.",
        )
    if len(set(apps)) != 1:
        raise errors.ValidationFailed(
            "A service account of an organisation operates exactly one app.", details={"field": "apps"}
        )


class NamedAccount(Protocol):
    """A service account, or the acceptance of one."""

    @property
    def service_account_id(self) -> str: ...

    @property
    def name(self) -> str: ...


def with_id_or_name(accounts: Sequence[Account], id_or_name: str) -> Account | None:
    """Return the account with this id or, if none has it, with this name. A name that equals the id of
    another account is never used."""
    by_id = [account for account in accounts if account.service_account_id == id_or_name]
    by_name = [account for account in accounts if account.name == id_or_name]
    return next(iter(by_id + by_name), None)


def check_account_name(name: str) -> None:
    check_name(name)
    if name.startswith("sa_"):
        raise errors.ValidationFailed(
            "The name of a service account cannot begin with sa_: ids begin with it.", details={"field": "name"}
        )


def how_to_operate(account: ServiceAccount, app_slug: str) -> str:
    """Return what a tenant admin does so that an account, or another one, operates the app too."""
    if account.project_id:
        return f"A tenant admin can allow it: gpuaas service-account bind {account.name} --app {app_slug}"
    return (
        "The account belongs to the organisation, so its app never changes. A tenant admin can create another one: "
        f"gpuaas service-account create NAME --app {app_slug} --org {account.org_id}; "
        "then accept it: gpuaas service-account accept NAME"
    )


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise errors.ValidationFailed(
            "A name has 1 to 63 letters, digits, hyphens or underscores.", details={"field": "name"}
        )


def check_user_name(name: str) -> None:
    if not _USER_NAME.fullmatch(name):
        raise errors.ValidationFailed(
            "A name begins with a letter or digit and has up to 63 letters, digits and characters of ._@+-",
            details={"field": "name"},
        )


def upgrade_warning(name: str, apps: Collection[str]) -> str:
    """Return what an admin must check about an account that existed before accounts were bound to apps."""
    if not apps:
        return (
            f"{name} operated no app when this platform was upgraded, so it can claim no operation any more. "
            f"If it is the account of a controller: gpuaas service-account bind {name} --app APP"
        )
    named = " ".join(f"--app {app_slug}" for app_slug in sorted(apps))
    return (
        f"{name} can claim only operations of {', '.join(sorted(apps))}, which it operated before the upgrade. It "
        f"still has all permissions of a service account. To limit it: gpuaas service-account bind {name} {named}"
    )


def wished_user_name(claims: dict[str, object]) -> str:
    """Return a valid name for a user of an identity provider. Another user may already have this name."""
    wished = claims.get("preferred_username") or claims.get("email") or ""
    cleaned = re.sub(r"[^A-Za-z0-9._@+-]+", "-", str(wished)).lstrip("._@+-")
    return cleaned[: NAME_LENGTH_MAX - 5] or "user"
