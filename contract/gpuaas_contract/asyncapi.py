"""Make the AsyncAPI 3.0 document, and the table of event types in the docs, from the event catalogue. `--check`
compares both with the golden files and `--write` updates them; the file suffix selects which one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpuaas_contract import VERSION, event_types, events, golden, meanings
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.event_types import EventType, Level

CATALOGUE = tuple(event_types.TYPES.values())
STREAMS: dict[Level, AnyEndpoint] = {
    "project": events.EVENT_STREAM,
    "org": events.ORG_EVENT_STREAM,
    "platform": events.PLATFORM_EVENT_STREAM,
}
TABLE_BEGINS = "<!-- event types: made from the contract by `make contract` -->\n"
TABLE_ENDS = "<!-- end of event types -->\n"
_OWNERS: dict[Level, str] = {"project": "a project", "org": "an organisation", "platform": "the platform"}
_NOUNS: dict[Level, str] = {"project": "project", "org": "organisation", "platform": "platform"}


def document(catalogue: Sequence[EventType] = CATALOGUE) -> dict[str, Any]:
    kinds = list(dict.fromkeys([events.Event, *(kind.payload for kind in catalogue)]))
    shapes, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(kinds, shapes, strict=True))
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "GPUaaS events",
            "version": VERSION,
            "description": "Events of projects, organisations and the platform, in commit order.",
        },
        "defaultContentType": "application/json",
        "channels": {f"{level}Events": _channel(level, catalogue) for level in STREAMS},
        "operations": {f"send{level.capitalize()}Events": _operation(level) for level in STREAMS},
        "components": {
            "messages": {kind.name: _message(kind, schema_of) for kind in catalogue},
            "schemas": meanings.described(components, kinds),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def table(catalogue: Sequence[EventType] = CATALOGUE) -> str:
    rows = [f"| `{kind.name}` | {kind.meaning} | {', '.join(kind.levels)} | {_fields(kind)} |" for kind in catalogue]
    return "\n".join(["| type | sent when | in the record of | payload |", "|---|---|---|---|", *rows, ""])


def text() -> str:
    return golden.as_json(document())


def expected(path: Path) -> str:
    """Return the expected content of the file: the whole document, or the page with an updated table."""
    if path.suffix == ".json":
        return text()
    page = path.read_text()
    before, begins, rest = page.partition(TABLE_BEGINS)
    _, ends, after = rest.partition(TABLE_ENDS)
    if not (begins and ends):
        raise ValueError(f"{path} has no place for the table of event types: {TABLE_BEGINS.strip()}")
    return "".join([before, begins, table(), ends, after])


def main() -> int:
    return golden.main("the event catalogue", expected)


def _channel(level: Level, catalogue: Sequence[EventType]) -> dict[str, Any]:
    return {
        "address": STREAMS[level].path,
        "title": f"Events of {_OWNERS[level]}",
        "description": (
            "Server-sent events: `id` is the cursor, `event` the type, `data` the message. Events come in order, once,"
            " without gaps; `Last-Event-ID` resumes. An event named `bookmark` only advances the cursor."
        ),
        "parameters": {
            name: {"description": f"The {_NOUNS[level]} whose events are sent."}
            for name in STREAMS[level].params.__struct_fields__
        },
        "messages": {
            kind.name: {"$ref": f"#/components/messages/{kind.name}"} for kind in catalogue if level in kind.levels
        },
    }


def _operation(level: Level) -> dict[str, Any]:
    return {
        "action": "send",
        "channel": {"$ref": f"#/channels/{level}Events"},
        "summary": STREAMS[level].summary,
        "security": [{"$ref": "#/components/securitySchemes/bearer"}],
        "bindings": {"http": {"method": STREAMS[level].method, "bindingVersion": "0.3.0"}},
    }


def _message(kind: EventType, schema_of: dict[Any, Any]) -> dict[str, Any]:
    narrowed = {"type": {"const": kind.name}, "payload": schema_of[kind.payload]}
    return {
        "name": kind.name,
        "summary": kind.meaning,
        "contentType": "application/json",
        "correlationId": {"location": "$message.payload#/correlation_id"},
        "payload": {"allOf": [schema_of[events.Event], {"type": "object", "properties": narrowed}]},
    }


def _fields(kind: EventType) -> str:
    return ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(kind.payload))


if __name__ == "__main__":
    sys.exit(main())
