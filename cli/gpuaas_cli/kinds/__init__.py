"""The kinds of resources that commands list and show, one module per domain."""

from typing import Any

from gpuaas_cli.client import session
from gpuaas_cli.kinds import instances, machines, people
from gpuaas_cli.kinds.kind import Filters as Filters
from gpuaas_cli.kinds.kind import Kind as Kind
from gpuaas_cli.kinds.kind import declared
from gpuaas_cli.kinds.kind import item_of as item_of

KINDS = tuple(kind for domain in (people, machines, instances) for kind in declared(domain.__doc__, domain.KINDS))


def find(word: str) -> Kind | None:
    return next((kind for kind in KINDS if word.lower() in kind.names), None)


def get(plural: str) -> Kind:
    return next(kind for kind in KINDS if kind.plural == plural)


def of(struct: Any) -> Kind | None:
    """Return the kind whose resources have this type, or the type that it extends."""
    bases = getattr(struct, "__mro__", (struct,))
    return next((kind for base in bases for kind in KINDS if kind.struct is base), None)


async def members(connection: session.Session, instance: str = "") -> list[Any]:
    """Return the members of one instance or of all instances, including removed ones."""
    return [*await get("members").fetch(connection, Filters(instance=instance, everything=True))]
