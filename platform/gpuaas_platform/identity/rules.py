"""Pure: which permission reaches where, who may give which role, and which names are allowed."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from gpuaas_contract.identity import Binding
from gpuaas_contract.permissions import APPOINTED, GRANTABLE, ROLES

Verdict = Literal["allowed", "denied", "hidden"]
Level = Literal["platform", "org", "project"]

NAME_LENGTH_MAX = 63
_NAME = re.compile(r"(?=.*[A-Za-z0-9])[A-Za-z0-9_-]{1,63}")
_USER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,62}")
ALWAYS_HELD = ("platform_admin", "tenant_admin")
"""Somebody must hold these where they are bound: without one, nobody could give any role there."""


def decide(bindings: Iterable[Binding], permission: str, scopes: Sequence[str]) -> Verdict:
    """`scopes` is the target's chain: platform, its organisation, its project. A role bound above reaches below.

    A caller with no role anywhere on the chain must not learn that the target exists: hidden, not denied.
    """
    reaching = [binding for binding in bindings if binding.scope in scopes]
    if any(permission in ROLES.get(binding.role, ()) for binding in reaching):
        return "allowed"
    return "denied" if reaching else "hidden"


def holders(permission: str) -> frozenset[str]:
    """Roles that hold a permission of the platform."""
    return frozenset(role for role, keys in ROLES.items() if permission in keys)


def deciding(bindings: Iterable[Binding], holders: Collection[str], scopes: Sequence[str]) -> Binding | None:
    """The binding that gives what the roles `holders` hold: the one bound highest; None when none does."""
    holding = [found for found in bindings if found.scope in scopes and found.role in holders]
    return min(holding, key=lambda found: (scopes.index(found.scope), found.role), default=None)


def sees_everything(bindings: Iterable[Binding], permission: str) -> bool:
    return decide(bindings, permission, ["platform"]) == "allowed"


def why_not_grant(
    bindings: Iterable[Binding], role: str, level: Level, scopes: Sequence[str], *, to_self: bool
) -> str | None:
    """The sentence that refuses a grant, or None. Nobody gives a permission they lack at that place.

    What one holds for a time only does not count: it could be made lasting by giving it on. A role that is appointed
    may hold more than the one who appoints; never for oneself, or it would be a way up.
    """
    if role not in GRANTABLE[level]:
        return f"At this level the roles are {', '.join(GRANTABLE[level])}."
    held = _held(binding for binding in bindings if binding.scope in scopes and binding.expires_at is None)
    lacking = sorted(ROLES[role] - held)
    if not lacking:
        return None
    if APPOINTED.get(role) in held:
        return "Nobody appoints themselves; another admin has to." if to_self else None
    return f"The role holds what you lack here: {', '.join(lacking)}."


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_user_name(name: str) -> bool:
    return _USER_NAME.fullmatch(name) is not None


def wished_user_name(claims: dict[str, object]) -> str:
    """A name for somebody an identity provider tells us of; whether it is free, the store knows."""
    said = claims.get("preferred_username") or claims.get("email") or ""
    cleaned = re.sub(r"[^A-Za-z0-9._@+-]+", "-", str(said)).lstrip("._@+-")
    return cleaned[: NAME_LENGTH_MAX - 5] or "user"


def _held(bindings: Iterable[Binding]) -> frozenset[str]:
    return frozenset[str]().union(*(ROLES.get(binding.role, frozenset()) for binding in bindings))
