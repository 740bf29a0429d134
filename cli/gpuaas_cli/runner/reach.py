"""Which commands call which endpoint, read from the declarations, and why some endpoints have no command."""

import functools
from collections.abc import Iterator
from typing import Any

import typer.main
from gpuaas_contract.endpoint import Endpoint

from gpuaas_cli import kinds
from gpuaas_cli.overview import COMMANDS
from gpuaas_cli.runner import run

_CONTROLLER = "an app's controller calls it for an operation whose lease it holds"
_STREAM = "it has the same events as its list, which gpuaas events follows and which survives restarts"
_STEWARD = "an app's controller calls it while it looks after an instance; people request operations themselves"
_ONE_DELIVERY = "an app's controller calls it; the value is for a machine, not for people"
_NODE = "a node calls it, to prove itself before it has a token"
UNREACHED: dict[str, str] = {
    **dict.fromkeys(
        (
            *("runtime.claim", "runtime.heartbeat", "runtime.step", "runtime.member", "runtime.access"),
            *("runtime.complete", "runtime.fail", "access.secret.issue", "access.credential.deliver"),
            *("artifacts.delivery.create", "artifacts.placement.create", "artifacts.placement.get"),
            "artifacts.placement.remove",
        ),
        _CONTROLLER,
    ),
    **dict.fromkeys(("steward.renew", "steward.access", "steward.request"), _STEWARD),
    "identity.posix.digest": "an app's controller waits with it for changed people; gpuaas people list shows them",
    "apps.instance.counts": "the console calls it for large projects; gpuaas get instances lists what is counted",
    "runtime.report": "an app's controller calls it, to report what it sees",
    "catalog.version.register": "gpuaas app register calls the route of the app, which its publishers may call too",
    "usage.record.report": "an app's controller calls it; usage that a person types would be no measurement",
    **dict.fromkeys(("access.secret.open", "access.credential.open"), _ONE_DELIVERY),
    "artifacts.content.get": "a machine calls it, with the delivery it was given",
    **dict.fromkeys(("record.events_stream", "record.org_events_stream", "record.platform_events_stream"), _STREAM),
    "document.openapi.get": "programs read it, to make clients; gpuaas schema shows it to people",
    **dict.fromkeys(("node.enrol", "node.token", "node.trust"), _NODE),
}
"""Endpoint without a command -> the reason. Endpoints for nodes need no row."""


def leaves() -> Iterator[tuple[str, str, Any]]:
    """Yield every command: title of its group, words after `gpuaas`, and the command object."""
    for title, commands in COMMANDS.items():
        for name, (place, _) in commands.items():
            if place:
                below = _below(name, typer.main.get_command(run.load(place, name)))
                yield from ((title, words, command) for words, command in below)


@functools.cache
def commands() -> dict[str, tuple[str, ...]]:
    """Return the main commands of each endpoint; if there are none, the commands that also call it."""
    made_for: dict[str, list[str]] = {}
    also: dict[str, list[str]] = {}
    for _, words, command in leaves():
        own, beside = run.endpoints_of(command.callback)
        for endpoint in own:
            made_for.setdefault(endpoint.name, []).append(words)
        for endpoint in beside:
            also.setdefault(endpoint.name, []).append(words)
    for kind in kinds.KINDS:
        for endpoint in filter(None, (kind.listing, kind.listing_all, kind.getting)):
            made_for.setdefault(endpoint.name, []).append(f"get {kind.plural}")
    return {name: tuple(words) for name, words in {**also, **made_for}.items()}


def lines(endpoint: Endpoint[Any, Any]) -> tuple[str, ...]:
    return tuple(f"gpuaas {words}" for words in commands().get(endpoint.name, ()))


def why_unreached(endpoint: Endpoint[Any, Any]) -> str:
    return "a node calls it" if endpoint.audience == "node" else UNREACHED.get(endpoint.name, "")


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    for word, below in (inner or {}).items():
        yield from _below(f"{words} {word}", below)
