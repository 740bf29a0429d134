"""Pure: the picture of an instance. Each role is a band; its members are cards with machine, state and GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuaas_contract.instances import Member, Role

from gpuaas_console.view import tone

CARDS_MAX = 24
"""A role with more members is drawn as one bar, with a part for each status."""
SCALE = 1000
PART_MIN = 8
"""A status of one member among many is still visible."""
GPUS_SHOWN = 8
TONES = ("bad", "warn", "busy", "idle", "good")
"""Order of the parts of a bar: what needs attention comes first."""


@dataclass(frozen=True)
class Card:
    member: Member
    tone: str
    gpus: int

    @property
    def gpu_marks(self) -> list[int]:
        return [12 + 12 * place for place in range(min(self.gpus, GPUS_SHOWN))]


@dataclass(frozen=True)
class Part:
    """The members of a role with one status, as a part of a bar."""

    x: int
    width: int
    status: str
    number: int
    tone: str


@dataclass(frozen=True)
class Band:
    role: Role
    cards: list[Card]
    parts: list[Part]


def picture(roles: Sequence[Role], members: Sequence[Member], gpus: Mapping[str, int]) -> list[Band]:
    """Return what is drawn of each role. `gpus` has the number of GPUs of each allocation."""
    bands: list[Band] = []
    for role in roles:
        own = drawn(role, members)
        cards = [Card(member, tone(member.status), gpus.get(member.allocation_id, 0)) for member in own]
        bands.append(Band(role, cards, [] if cards else _parts(role)))
    return bands


def drawn(role: Role, members: Sequence[Member]) -> list[Member]:
    """Return the members of a role that are drawn as cards: all of them, or none if they are many or not all known."""
    own = [member for member in members if member.component_key == role.component_key]
    if len(own) > CARDS_MAX or len(own) < sum(role.by_status.values()):
        return []
    return sorted(own, key=lambda member: (len(member.node_name), member.node_name))


def _parts(role: Role) -> list[Part]:
    """Return a bar: each status has a part as wide as its share of the members, and always a visible one."""
    counted = [(status, number) for status, number in role.by_status.items() if number]
    total, free, x = sum(role.by_status.values()), SCALE - PART_MIN * len(counted), 0
    result: list[Part] = []
    for status, number in sorted(counted, key=lambda pair: (TONES.index(tone(pair[0])), pair[0])):
        width = PART_MIN + free * number // total
        result.append(Part(x, width, status, number, tone(status)))
        x += width
    return result
