"""What a domain does, in the same transaction, about a fact that a domain below it records.

Imports go downwards, so a lower domain cannot call a higher one. Instead it publishes facts, each domain above declares
its reactions in a `Reactions`, and `server` merges them into the site. Use a reaction only where both changes must be
committed together; everything else is a loop that compares.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from gpuaas_platform.kit import db

Fact = TypeVar("Fact")
Reaction = Callable[[db.Tx, Fact], Awaitable[None]]


class Reactions:
    """Reactions by the type of the fact and, where the fact has kinds, by its kind."""

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
