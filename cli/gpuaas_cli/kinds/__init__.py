"""The kinds of things that commands list and show, one module per domain."""

from typing import Any

from gpuaas_cli import output
from gpuaas_cli.client import session
from gpuaas_cli.flags import Flags
from gpuaas_cli.kinds import instances, machines, people
from gpuaas_cli.kinds.kind import Filters as Filters
from gpuaas_cli.kinds.kind import Kind as Kind
from gpuaas_cli.kinds.kind import item_of as item_of

KINDS: tuple[Kind, ...] = (*people.KINDS, *machines.KINDS, *instances.KINDS)


def find(word: str) -> Kind | None:
    return next((kind for kind in KINDS if word.lower() in kind.names), None)


def get(plural: str) -> Kind:
    return next(kind for kind in KINDS if kind.plural == plural)


def of(struct: Any) -> Kind | None:
    """The kind whose things have this form."""
    return next((kind for kind in KINDS if kind.struct is struct), None)


def show(flags: Flags, plural: str, answer: Any) -> None:
    output.show(flags, answer, get(plural).table)


def cells(flags: Flags, plural: str, row: Any) -> list[str]:
    """One line of the table, for rows that come one at a time."""
    return output.cells(row, get(plural).table, wide=flags.output == "wide")


async def members(connection: session.Session, instance: str = "") -> list[Any]:
    """Members of an instance or of all, removed ones included."""
    return [*await get("members").fetch(connection, Filters(instance=instance, everything=True))]
