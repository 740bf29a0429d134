"""Reactions: functions that a domain runs when a domain below it publishes a fact, in the same transaction.

A domain imports only domains below it, so a lower domain cannot call a higher one. Instead it publishes facts; a higher
domain declares its reactions in a `Reactions`; `server` merges them into the site. Use a reaction only if both changes
must be committed together. In all other cases, use a loop that reconciles.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from gpuaas_platform.kit import db

Fact = TypeVar("Fact")
Reaction = Callable[[db.Tx, Fact], Awaitable[None]]


class Reactions:
    """The functions that are called when something happened, by the type of the event and, if it has kinds, by kind."""

    def __init__(self) -> None:
        self._reactions: dict[tuple[type, str], list[Callable[..., Awaitable[None]]]] = defaultdict(list)

    @classmethod
    def merged(cls, parts: Iterable["Reactions"]) -> "Reactions":
        whole = cls()
        for part in parts:
            for key, reactions in part._reactions.items():
                whole._reactions[key] += reactions
        return whole

    def to(self, fact: type[Fact], kind: str = "") -> Callable[[Reaction[Fact]], Reaction[Fact]]:
        """Declare the decorated function as a reaction to facts of this type and kind."""

        def register(reaction: Reaction[Fact]) -> Reaction[Fact]:
            self._reactions[fact, kind].append(reaction)
            return reaction

        return register

    async def react(self, tx: db.Tx, fact: object, kind: str = "") -> None:
        """Run every reaction to the fact. A reaction that raises rolls the whole transaction back."""
        for reaction in self._reactions.get((type(fact), kind), ()):
            await reaction(tx, fact)
