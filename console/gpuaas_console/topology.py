"""Pure: the picture of an instance. Each role is a band; its members are cards with machine, state and GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuaas_contract.instances import Member, Role

from gpuaas_console.view import tone

WIDTH = 1160
CARD_W, CARD_H, GAP = 172, 64, 12
LEFT = 150
PER_ROW = (WIDTH - LEFT) // (CARD_W + GAP)
CARDS_MAX = 24
"""A role with more members is drawn as one bar, with a part for each status."""
BAR_H, PART_MIN = 18, 4
GPUS_SHOWN = 8
TONES = ("bad", "warn", "busy", "idle", "good")
"""Order of the parts of a bar: what needs attention comes first."""


@dataclass(frozen=True)
class Card:
    x: int
    y: int
    member: Member
    tone: str
    gpus: int

    @property
    def gpu_marks(self) -> list[int]:
        return [self.x + 12 + 12 * place for place in range(min(self.gpus, GPUS_SHOWN))]


@dataclass(frozen=True)
class Part:
    """The members of a role with one status, as a part of a bar."""

    x: int
    y: int
    width: int
    status: str
    number: int
    tone: str


@dataclass(frozen=True)
class Band:
    y: int
    height: int
    role: Role
    cards: list[Card]
    parts: list[Part]


@dataclass(frozen=True)
class Picture:
    height: int
    bands: list[Band]
    width: int = WIDTH


def picture(roles: Sequence[Role], members: Sequence[Member], gpus: Mapping[str, int]) -> Picture:
    """Return where each role and member is drawn. `gpus` has the number of GPUs of each allocation."""
    bands: list[Band] = []
    y = 0
    for role in roles:
        own = drawn(role, members)
        cards, parts = _cards(own, y, gpus), [] if own else _parts(role, y + GAP)
        lowest = max((card.y + CARD_H for card in cards), default=y + GAP + (BAR_H + 28 if parts else 40))
        bands.append(Band(y, lowest - y + GAP, role, cards, parts))
        y = lowest + GAP + 10
    return Picture(max(y - 10, 1), bands)


def drawn(role: Role, members: Sequence[Member]) -> list[Member]:
    """Return the members of a role that are drawn as cards: all of them, or none if they are many or not all known."""
    own = [member for member in members if member.component_key == role.component_key]
    if len(own) > CARDS_MAX or len(own) < sum(role.by_status.values()):
        return []
    return sorted(own, key=lambda member: (len(member.node_name), member.node_name))


def _cards(members: Sequence[Member], top: int, gpus: Mapping[str, int]) -> list[Card]:
    return [
        Card(
            LEFT + (place % PER_ROW) * (CARD_W + GAP),
            top + GAP + (place // PER_ROW) * (CARD_H + GAP),
            member,
            tone(member.status),
            gpus.get(member.allocation_id, 0),
        )
        for place, member in enumerate(members)
    ]


def _parts(role: Role, y: int) -> list[Part]:
    """Return a bar: each status has a part as wide as its share of the members, and always a visible one."""
    counted = [(status, number) for status, number in role.by_status.items() if number]
    ordered = sorted(counted, key=lambda pair: (TONES.index(tone(pair[0])), pair[0]))
    total, free, x, result = max(sum(role.by_status.values()), 1), WIDTH - LEFT - GAP, LEFT, list[Part]()
    free -= PART_MIN * len(ordered)
    for status, number in ordered:
        width = PART_MIN + free * number // total
        result.append(Part(x, y, width, status, number, tone(status)))
        x += width
    return result
