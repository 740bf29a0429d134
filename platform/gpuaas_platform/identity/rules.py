"""Pure: which permission reaches where."""

from collections.abc import Iterable, Sequence
from typing import Literal

from gpuaas_contract.identity import Binding
from gpuaas_contract.permissions import ROLES

Verdict = Literal["allowed", "denied", "hidden"]


def decide(bindings: Iterable[Binding], permission: str, scopes: Sequence[str]) -> Verdict:
    """`scopes` is the target's chain: platform, its organisation, its project. A role bound above reaches below.

    A caller with no role anywhere on the chain must not learn that the target exists: hidden, not denied.
    """
    reaching = [binding for binding in bindings if binding.scope in scopes]
    if any(permission in ROLES[binding.role] for binding in reaching):
        return "allowed"
    return "denied" if reaching else "hidden"


def sees_everything(bindings: Iterable[Binding], permission: str) -> bool:
    return any(binding.scope == "platform" and permission in ROLES[binding.role] for binding in bindings)
