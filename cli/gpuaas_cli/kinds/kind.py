"""What one kind of thing is to `gpuaas get`: its names, how it is fetched, and its columns."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuaas_contract.endpoint import Endpoint

from gpuaas_cli.client.session import Session
from gpuaas_cli.output import Column


@dataclass(frozen=True)
class Filters:
    instance: str = ""
    correlation: str = ""
    everything: bool = False
    """Also what is gone: deleted instances, removed members, released allocations, questions that were answered."""


Fetch = Callable[[Session, Filters], Awaitable[Sequence[Any]]]
Find = Callable[[Session, str], Awaitable[Any]]


@dataclass(frozen=True)
class Kind:
    plural: str
    names: frozenset[str]
    fetch: Fetch
    columns: tuple[Column, ...]
    name: Callable[[Any], str]
    """What other commands take for one of these."""
    answers_to: Callable[[Any], tuple[str, ...]]
    """What NAME may be in `gpuaas get KIND NAME`."""
    find: Find | None = None
    """How one is found by NAME where there is a shorter way than through the whole list."""
    of_instance: bool = False
    """Listed for one instance at a time, so the only name given is the instance's."""


def listed(endpoint: Endpoint[Any, Any]) -> Fetch:
    """All that a list has, unfiltered."""

    async def fetch(session: Session, _: Filters) -> Sequence[Any]:
        return await session.every(endpoint)

    return fetch


def names(*words: str) -> frozenset[str]:
    return frozenset(words)


def payload_text(payload: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in payload.items() if value not in ("", None, [], {}))
