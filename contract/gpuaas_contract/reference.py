"""Make reference pages from the contract's tables: lifecycles with diagrams, and the error catalogue.

`python -m gpuaas_contract.reference --write docs/reference/lifecycles.md docs/reference/errors.md`"""

import sys
from collections.abc import Callable

from gpuaas_contract import golden, lifecycles, operations
from gpuaas_contract.errors import BY_CODE
from gpuaas_contract.failure_codes import FAILURE_CODES

_LIFECYCLES: tuple[tuple[str, str, lifecycles.Table], ...] = (
    (
        "App instance",
        "An instance's status is derived from its members, its conditions and the operation that works on it.",
        lifecycles.INSTANCE,
    ),
    (
        "Member",
        "The app's controller changes a member's status: in reports on an operation, or between operations.",
        lifecycles.MEMBER,
    ),
    ("Operation", "A `failed` operation changes only if a person retries, undoes or closes it.", lifecycles.OPERATION),
    ("Allocation", "A claim on a node.", lifecycles.ALLOCATION),
    (
        "Node",
        "The state that operators set. Whether the node sends heartbeats, `ready` or `lost`, is a separate status.",
        lifecycles.NODE_ADMIN,
    ),
    (
        "Agent release",
        "A signed build of the node agent. It can be installed once it is approved.",
        lifecycles.AGENT_RELEASE,
    ),
    (
        "Tenancy of a node",
        "Which projects may get a node: all, the project that used it last, or none.",
        lifecycles.NODE_TENANCY,
    ),
    (
        "Entitlement request",
        "The request of a project for an app that it may not deploy. A further request opens it again.",
        lifecycles.ENTITLEMENT_REQUEST,
    ),
    ("App version", "An entry of the catalog. Its manifest never changes.", lifecycles.APP_VERSION),
    ("Artifact", "Whether the artifact may be used. Independent of its trust.", lifecycles.ARTIFACT),
    (
        "Artifact's trust",
        "Whether the last verification of the artifact succeeded, or `revoked`.",
        lifecycles.ARTIFACT_TRUST,
    ),
    ("Artifact placement", "An artifact that is copied to a machine.", lifecycles.PLACEMENT),
)


def lifecycles_page() -> str:
    parts = [
        "# Lifecycles",
        "Made from `contract/gpuaas_contract/lifecycles.py`; after a change there: `make contract`. A resource"
        " changes along these arrows only; a report of the same state is legal too.",
    ]
    for title, meaning, table in _LIFECYCLES:
        arrows = [f"    {state} --> {target}" for state, targets in table.items() for target in sorted(targets)]
        ends = [f"    {state} --> [*]" for state, targets in table.items() if not targets]
        first = f"    [*] --> {next(iter(table))}"
        diagram = "\n".join(["```mermaid", "stateDiagram-v2", first, *arrows, *ends, "```"])
        parts += [f"## {title}", meaning, diagram]
    parts += ["## Goals of operations", _goals()]
    return "\n\n".join(parts) + "\n"


def errors_page() -> str:
    lines = [
        "# Errors",
        "",
        "Made from `contract/gpuaas_contract/errors.py`; after a change there: `make contract`. Every failure is"
        " `application/problem+json` with `code`, `message`, `correlation_id`, `details`, `retryable` and `fix`.",
        "",
        "| code | status | meaning | retryable | what to do |",
        "|---|---|---|---|---|",
    ]
    for code, kind in sorted(BY_CODE.items()):
        retryable = "yes" if kind.retryable else ""
        lines.append(f"| `{code}` | {kind.status} | {kind.title} | {retryable} | {kind.default_fix} |")
    lines += ["", *_failure_codes()]
    return "\n".join(lines) + "\n"


def _failure_codes() -> list[str]:
    lines = [
        "## Codes of failed operations",
        "",
        "`error.code` of an operation that failed. These are not errors of a request: the operation was accepted, and"
        " its work failed. Apps may use codes of their own.",
        "",
        "| code | set by | meaning | what to do |",
        "|---|---|---|---|",
    ]
    return [
        *lines,
        *(f"| `{code}` | {kind.source} | {kind.meaning} | {kind.fix} |" for code, kind in FAILURE_CODES.items()),
    ]


def _goals() -> str:
    lines = ["| kind | status of its members when done | when undone | default deadline |", "|---|---|---|---|"]
    for kind, deadline_s in operations.DEADLINES_S.items():
        goal, undone = operations.GOALS.get(kind, frozenset()), operations.UNDONE.get(kind, frozenset())
        lines.append(f"| `{kind}` | {_words(goal)} | {_words(undone)} | {deadline_s:,} s |")
    return "\n".join(lines)


def _words(states: frozenset[str]) -> str:
    return " or ".join(f"`{state}`" for state in sorted(states))


PAGES: dict[str, Callable[[], str]] = {"lifecycles.md": lifecycles_page, "errors.md": errors_page}


def main() -> int:
    return golden.main("the contract", lambda path: PAGES[path.name]())


if __name__ == "__main__":
    sys.exit(main())
