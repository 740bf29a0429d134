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
"""A role with more members is drawn as small squares."""
SQUARE = 14
SQUARES_PER_ROW = (WIDTH - LEFT) // (SQUARE + 4)
GPUS_SHOWN = 8


@dataclass(frozen=True)
class Card:
    x: int
    y: int
    member: Member
    tone: str
    gpus: int
    small: bool = False

    @property
    def gpu_marks(self) -> list[int]:
        return [self.x + 12 + 12 * place for place in range(min(self.gpus, GPUS_SHOWN))]


@dataclass(frozen=True)
class Band:
    y: int
    height: int
    role: Role
    cards: list[Card]


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
        own = [member for member in members if member.component_key == role.component_key]
        own.sort(key=lambda member: (len(member.node_name), member.node_name))
        cards = _squares(own, y) if len(own) > CARDS_MAX else _cards(own, y, gpus)
        lowest = max((card.y + (SQUARE if card.small else CARD_H) for card in cards), default=y + GAP + 40)
        bands.append(Band(y, lowest - y + GAP, role, cards))
        y = lowest + GAP + 10
    return Picture(max(y - 10, 1), bands)


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


def _squares(members: Sequence[Member], top: int) -> list[Card]:
    return [
        Card(
            LEFT + (place % SQUARES_PER_ROW) * (SQUARE + 4),
            top + GAP + (place // SQUARES_PER_ROW) * (SQUARE + 4),
            member,
            tone(member.status),
            0,
            small=True,
        )
        for place, member in enumerate(members)
    ]
