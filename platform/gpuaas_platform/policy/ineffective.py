"""Pure: find overlay entries without full effect, because a layer above restricts more. They are kept and reported."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from gpuaas_contract.policy import LIMITS, SUBJECTS, Choice, Ineffective, Layer

from gpuaas_platform.policy import patterns, rules

Extent = Literal["whole", "part"]


def of_every_layer(layers: rules.Layers) -> list[Ineffective]:
    return [entry for last in range(1, len(layers) + 1) for entry in of_last_layer(layers[:last])]


def of_last_layer(layers: rules.Layers) -> list[Ineffective]:
    """Return the allow entries and limits of the last layer that layers above, or its own denies, make ineffective."""
    layer, overlay = layers[-1]
    entries: list[Ineffective] = []
    for field in SUBJECTS.values():
        sieves = _sieves(layers, field)
        for entry in rules.choice_of(overlay, field).allow or []:
            taken = _taken(sieves, entry)
            if taken is not None:
                entries.append(_ineffective(layer, f"{field}.allow", entry, *taken))
    for name in LIMITS:
        number, above = rules.number_of(overlay, name), rules.limit(layers[:-1], name)
        if number is not None and above is not None and number > above.max:
            entries.append(_ineffective(layer, name, str(number), "whole", above.layer, above.rule))
    return entries


def _ineffective(layer: Layer, field: str, entry: str, extent: Extent, by: Layer, rule: str) -> Ineffective:
    return Ineffective(layer=layer, field=field, entry=entry, extent=extent, narrowed_by=by, rule=rule)


@dataclass(frozen=True)
class _Sieve:
    """The values of one policy field that this layer and all layers above it allow, prepared to check many entries."""

    layer: Layer
    allow: patterns.Entries | None
    """Intersection of the allow lists of these layers; None if no layer has one."""
    deny: patterns.Entries
    left: patterns.Entries
    """The entries of `allow` that are not denied as a whole."""
    own_allow: patterns.Entries | None
    allow_rule: str
    deny_rule: str

    def leaves_all_of(self, entry: str) -> bool:
        return (self.allow is None or self.allow.cover(entry)) and not self.deny.overlap(entry)

    def leaves_some_of(self, entry: str) -> bool:
        whole = self.allow is None or self.allow.cover(entry)
        return (whole and not self.deny.cover(entry)) or self.left.any_inside(entry)

    def rule_for(self, entry: str) -> str:
        takes_by_allow = self.own_allow is not None and not self.own_allow.cover(entry)
        return self.allow_rule if takes_by_allow else self.deny_rule


def _sieves(layers: rules.Layers, field: str) -> list[_Sieve]:
    """Return one sieve per layer. The allow list of the last layer is left out, because its entries are checked."""
    layer, overlay = layers[-1]
    without_own_allow = msgspec.structs.replace(overlay, **{field: Choice(deny=rules.choice_of(overlay, field).deny)})
    asked = [*layers[:-1], (layer, without_own_allow)]
    return [_sieve(asked[:depth], field) for depth in range(1, len(asked) + 1)]


def _sieve(layers: rules.Layers, field: str) -> _Sieve:
    layer, overlay = layers[-1]
    own, together = rules.choice_of(overlay, field), rules.merged_choice(layers, field)
    deny = patterns.Entries(together.deny)
    return _Sieve(
        layer=layer,
        allow=None if together.allow is None else patterns.Entries(together.allow),
        deny=deny,
        left=patterns.Entries(entry for entry in together.allow or [] if not deny.cover(entry)),
        own_allow=None if own.allow is None else patterns.Entries(own.allow),
        allow_rule=rules.words(layer, overlay, f"allows only {field} {rules.listed(own.allow or [])}"),
        deny_rule=rules.words(layer, overlay, f"denies {field} {rules.listed(own.deny)}"),
    )


def _taken(sieves: Sequence[_Sieve], entry: str) -> tuple[Extent, Layer, str] | None:
    """Return the first layer that removes the entry completely ("whole"), else the first that removes a part ("part").

    The last layer counts for "whole" only: a deny inside its own allow entry is an intended exception.
    """
    for sieve in sieves:
        if not sieve.leaves_some_of(entry):
            return "whole", sieve.layer, sieve.rule_for(entry)
    for sieve in sieves[:-1]:
        if not sieve.leaves_all_of(entry):
            return "part", sieve.layer, sieve.rule_for(entry)
    return None
