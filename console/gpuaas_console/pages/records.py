"""Lists of any kind of resource, with the columns of the command line: `gpuaas get KIND`."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from gpuaas_cli import kinds, output
from gpuaas_cli.kinds import Filters, Kind
from gpuaas_contract.audit import PLATFORM_AUDIT_LIST
from gpuaas_contract.capacity import NODE_LIST
from gpuaas_contract.errors import NotFound, PermissionDenied
from starlette.responses import Response

from gpuaas_console import view
from gpuaas_console.changes import CHANGES, Change
from gpuaas_console.pages import newest
from gpuaas_console.web import Failure, Visit

GROUPS: dict[str, tuple[str, ...]] = {
    "Machines": ("nodes", "allocations", "grants", "agent-releases"),
    "People and programs": ("users", "bindings", "service-accounts", "accepted-accounts", "credentials", "ssh-keys"),
    "Apps": ("apps", "app-offers", "app-requests", "entitlements", "controllers", "artifacts", "trust-keys"),
    "History": ("operations", "events", "audit", "usage"),
}
SINGLE = ("set-policy", "set-org-policy", "set-platform-policy", "unseal")
"""Changes that belong to no list."""
TITLES = {
    "nodes": "Nodes",
    "grants": "Machine access",
    "agent-releases": "Agent releases",
    "app-offers": "Apps that this project can have",
    "app-requests": "Requests for apps",
    "bindings": "Roles of people",
    "accepted-accounts": "Accounts of the organisation",
    "ssh-keys": "Your SSH keys",
    "trust-keys": "Trust keys",
    "audit": "Audit trail",
}
EMPTY = {
    "grants": "gpuaas ssh INSTANCE",
    "credentials": "gpuaas credential create --help",
    "ssh-keys": "gpuaas ssh-key add --help",
    "artifacts": "gpuaas artifact publish --help",
    "entitlements": "gpuaas app entitle --help",
    "apps": "gpuaas app register MANIFEST",
}
"""The command that makes the first resource of a kind for which the console has no form."""
EXACT = {"audit": {"action": "Action", "correlation_id": "Correlation id"}}
"""Further filters of lists that grow forever: the platform applies them to all rows."""
ROWS_MAX = 500
SEARCHED_MAX = 5000
"""How many of the newest rows a search reads, in lists that grow forever."""
PAGED: dict[str, Callable[[Visit, str], Awaitable[tuple[list[Any], str]]]] = {
    "events": newest.events,
    "usage": newest.usage,
}
"""Lists that the platform sends oldest first only: the function reads the newest rows before a position."""


class Line(NamedTuple):
    """A row as it is shown, and its changes."""

    cells: list[str]
    changes: list[tuple[str, str, str]]
    url: str = ""
    """The page of the row, if it has one."""
    key: str = ""
    """Id of a node, to which the picture of the capacity leads."""


def title(plural: str) -> str:
    return TITLES.get(plural, plural.replace("-", " ").capitalize())


async def index(visit: Visit) -> Response:
    groups = {group: [(plural, title(plural)) for plural in plurals] for group, plurals in GROUPS.items()}
    more = [(name, CHANGES[name].label) for name in SINGLE if not await visit.why_not(CHANGES[name].endpoint)]
    return visit.page("records.html", groups=groups, more=more)


async def show(visit: Visit) -> Response:
    kind = next((kind for kind in kinds.KINDS if kind.plural == visit.path("kind")), None)
    if kind is None or not any(kind.plural in plurals for plurals in GROUPS.values()):
        raise Failure(404, "This list does not exist", "No kind of resource has this name.", "Open all lists.")
    asked = {name: visit.query.text(name) for name in ("q", "all", "wide")}
    older = ""
    if kind.plural in PAGED:
        rows, older = await PAGED[kind.plural](visit, visit.query.text("before"))
        more = bool(older)
    else:
        rows, more = await _rows(visit, kind, everything=bool(asked["all"]))
    await visit.learn_names()
    new, of_rows = await _changes(visit, kind)
    titles, matching = _matching(visit, kind, rows, of_rows)
    exact = [(name, label, visit.query.text(name)) for name, label in EXACT.get(kind.plural, {}).items()]
    return visit.page(
        "list.html",
        exact=exact,
        kind=kind,
        name=title(kind.plural),
        titles=titles,
        cells=matching[:ROWS_MAX],
        total=len(matching),
        rows_max=ROWS_MAX,
        read=len(rows),
        more=more,
        older=view.link("p", visit.project, "records", kind.plural, before=older, **asked) if older else "",
        asked=asked,
        self_url=view.link("p", visit.project, "records", kind.plural),
        hides=kind.hides,
        empty=EMPTY.get(kind.plural, ""),
        line=_line(visit, kind),
        is_part=bool(asked["q"] or older or visit.query.text("before") or any(value for _, _, value in exact)),
        new=new,
        changeable=any(line.changes for line in matching[:ROWS_MAX]),
        capacity=_capacity(rows) if kind.listing is NODE_LIST else None,
        address_of=functools.partial(row_address, kind, visit.project, {line.key for line in matching[:ROWS_MAX]}),
    )


def _matching(visit: Visit, kind: Kind, rows: list[Any], changes: dict[str, Change]) -> tuple[list[str], list[Line]]:
    """Return the titles of the columns, and the rows that have the searched text."""
    wide, text = bool(visit.query.text("wide")), visit.query.text("q").lower()
    lines = [
        Line(
            output.cells(row, kind.table, wide=wide, spaces=True, ages=False),
            _offered(changes, row),
            _page_of(visit, kind, row),
            getattr(row, "node_id", ""),
        )
        for row in rows
    ]
    titles = [column_title(column) for column in kind.table.shown(wide)]
    matching = [line for line in lines if text in " ".join(line.cells).lower()]
    return (titles, matching) if wide else filled(titles, matching)


def column_title(column: output.Column) -> str:
    """Return the title of a column. That of an age is what happened then, because people can choose exact times."""
    is_age = column.title in output.AGES and isinstance(column.value, str)
    return (str(column.value).removesuffix("_at").upper() if is_age else column.title).replace("_", " ")


def row_address(kind: Kind, project: str, shown: Collection[str], node: Any) -> str:
    """Return where the row of a node is: on this page, or on the page of a search for it."""
    page = "" if node.node_id in shown else view.link("p", project, "records", kind.plural, q=node.name)
    return f"{page}#{node.node_id}"


def filled(titles: list[str], lines: list[Line]) -> tuple[list[str], list[Line]]:
    """Return the columns that have a value in some row, and that mean something to people."""
    filled = [any(line.cells[at] not in ("", "-") for line in lines) for at in range(len(titles))]
    kept = [at for at, title in enumerate(titles) if filled[at] and title != "CURSOR"]
    return [titles[at] for at in kept], [line._replace(cells=[line.cells[at] for at in kept]) for line in lines]


async def _changes(visit: Visit, kind: Kind) -> tuple[dict[str, Change], dict[str, Change]]:
    """Return what the person may make new in a list, and what can be changed in its rows."""
    declared = {name: change for name, change in CHANGES.items() if change.of == kind.plural}
    why = await asyncio.gather(*(visit.why_not(change.endpoint) for change in declared.values()))
    allowed = {name: change for (name, change), no in zip(declared.items(), why, strict=True) if not no}
    new = {name: change for name, change in allowed.items() if change.named or not change.target}
    return new, {name: change for name, change in allowed.items() if name not in new}


def _offered(changes: dict[str, Change], row: Any) -> list[tuple[str, str, str]]:
    """Return name, label and target of the changes that the row allows now."""
    return [(name, item.label, item.value_of(row)) for name, item in changes.items() if item.fits(row)]


def _page_of(visit: Visit, kind: Kind, row: Any) -> str:
    """Return the page of a row; empty: it has none."""
    if kind.plural == "operations":
        return view.link("p", visit.project, "operations", row.operation_id)
    if kind.plural == "controllers":
        return view.link("p", visit.project, "controllers", controller_id=row.controller_id)
    return ""


def _line(visit: Visit, kind: Kind) -> str:
    """Return the command that lists the same. A search is left out: people search the output of a command."""
    if kind.plural == "audit":
        words = ["audit", "list", "--order", "newest", *view.options("--action", visit.query.text("action"))]
        words += view.options("--correlation", visit.query.text("correlation_id"))
    else:
        words = ["get", kind.plural, *(["--all"] if visit.query.text("all") else [])]
    wide = ["-o", "wide"] if visit.query.text("wide") else []
    return view.line("gpuaas", *words, *wide, "--project", visit.project)


async def _rows(visit: Visit, kind: Kind, *, everything: bool) -> tuple[list[Any], bool]:
    """Return the rows of the project, and whether there are older ones that were not read."""
    if "order" not in kind.listing.query.__struct_fields__:
        return [*await kind.fetch(visit.calls(), Filters(everything=everything))], False
    rows, more = await _newest(visit, kind)
    if everything or kind.is_gone is None:
        return rows, more
    return [row for row in rows if not kind.is_gone(row)], more


async def _newest(visit: Visit, kind: Kind) -> tuple[list[Any], bool]:
    """Return the newest rows of a list that grows forever: the cost does not depend on its length.

    The audit trail is the platform's, with what belongs to no project, if the person may read it."""
    asked = {name: visit.query.text(name) for name in EXACT.get(kind.plural, {})}
    query = {"order": "newest", **{name: text for name, text in asked.items() if text}}
    limit = SEARCHED_MAX if visit.query.text("q") else ROWS_MAX
    try:
        listing = PLATFORM_AUDIT_LIST if kind.plural == "audit" else kind.listing
        return await visit.calls().first(limit, listing, query=query)
    except (NotFound, PermissionDenied):
        return await visit.calls().first(limit, kind.listing, query=query)


def _capacity(nodes: list[Any]) -> dict[str, list[Any]]:
    """Return the nodes by what they are used for: the picture of the capacity."""

    def use(node: Any) -> str:
        is_free = node.status == "ready" and node.admin_state == "active"
        return "allocated" if node.allocation_id else "free" if is_free else "not available"

    return {name: [node for node in nodes if use(node) == name] for name in ("allocated", "free", "not available")}
