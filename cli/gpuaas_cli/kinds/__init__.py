"""What `gpuaas get` can list, and how other commands show one of it. One module per domain."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuaas_contract.agents import NodeTask

from gpuaas_cli import output
from gpuaas_cli.client import session
from gpuaas_cli.flags import Flags
from gpuaas_cli.kinds import access, artifacts, capacity, catalog, instances, people, record
from gpuaas_cli.kinds.kind import Filters as Filters
from gpuaas_cli.kinds.kind import Kind as Kind

NO_FILTERS = Filters()
KINDS: tuple[Kind, ...] = (
    *people.KINDS,
    *capacity.KINDS,
    *access.KINDS,
    *catalog.KINDS,
    *artifacts.KINDS,
    *instances.KINDS,
    *record.KINDS,
)


def find(word: str) -> Kind | None:
    return next((kind for kind in KINDS if word.lower() in kind.names), None)


def get(plural: str) -> Kind:
    return next(kind for kind in KINDS if kind.plural == plural)


def show_list(flags: Flags, plural: str, rows: Sequence[Any]) -> None:
    kind = get(plural)
    output.show_list(flags, rows, kind.columns, kind.name)


def show_one(flags: Flags, plural: str, row: Any) -> None:
    kind = get(plural)
    output.show_one(flags, row, kind.columns, kind.name)


def cells(flags: Flags, plural: str, row: Any) -> list[str]:
    """One line of the table, for rows that come one at a time."""
    return output.cells(row, get(plural).columns, wide=flags.output == "wide")


def show_tasks(flags: Flags, tasks: Sequence[NodeTask], node_names: Mapping[str, str]) -> None:
    """Tasks of nodes are listed for a node at a time, so they are no kind of their own."""
    output.show_list(flags, tasks, capacity.task_columns(node_names), lambda one: str(one.task_id))


def list_all(flags: Flags, plural: str, filters: Filters = NO_FILTERS) -> None:
    """What `gpuaas get` does, for the `list` command of a group."""

    async def fetch(opened: session.Session) -> Sequence[Any]:
        return await get(plural).fetch(opened, filters)

    show_list(flags, plural, session.run(flags, fetch))
