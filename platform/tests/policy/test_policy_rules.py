"""Overlays against a model without patterns: it writes every list out as a set of values.

100,000 seeded cases (three layers, three values each) are decided by the rules and by the model. Rules that are wrong
on purpose must fail the same check.
"""

import fnmatch
import functools
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec
import pytest
from gpuaas_contract import errors
from gpuaas_contract.policy import LIMITS, Choice, Layer, Overlay
from gpuaas_platform.policy import ineffective, patterns, rules
from hypothesis import given, settings
from hypothesis import strategies as st

LAYERS: tuple[Layer, ...] = ("global", "org", "project")
UNIVERSE = frozenset("".join(letters) for length in range(1, 5) for letters in itertools.product("ab/", repeat=length))
VALUES = sorted(value for value in UNIVERSE if len(value) <= 3)
ENTRIES = [*sorted(value for value in UNIVERSE if len(value) <= 2), "*", "a*", "b*", "/*", "ab*", "a/*", "ba*", "aa*"]

CASES = 100_000
CASES_PER_EXAMPLE = 500
VALUES_PER_CASE = 3


# The model. A layer is a pair of sets of values; nothing here is shared with the rules.
@functools.cache
def written_out(entry: str) -> frozenset[str]:
    return frozenset(value for value in UNIVERSE if fnmatch.fnmatchcase(value, entry))


@dataclass(frozen=True)
class ModelLayer:
    allowed: frozenset[str]
    denied: frozenset[str]


def model_of(stack: rules.Layers) -> dict[Layer, ModelLayer]:
    def union(entries: Iterable[str]) -> frozenset[str]:
        return frozenset().union(*map(written_out, entries))

    return {
        layer: ModelLayer(
            UNIVERSE if overlay.regions.allow is None else union(overlay.regions.allow), union(overlay.regions.deny)
        )
        for layer, overlay in stack
    }


def model_allowed(model: dict[Layer, ModelLayer]) -> frozenset[str]:
    left = UNIVERSE
    for layer in model.values():
        left = (left & layer.allowed) - layer.denied
    return left


def model_refusing(model: dict[Layer, ModelLayer], value: str) -> Layer | None:
    refusing = [name for name, layer in model.items() if value in layer.denied or value not in layer.allowed]
    return refusing[0] if refusing else None


# The check, for the rules and for their wrong variants.
Refusing = Callable[[rules.Layers, str], Layer | None]


def refusing_layer(stack: rules.Layers, value: str) -> Layer | None:
    verdict = rules.verdict(stack, "region", value)
    assert verdict.allowed or verdict.layer in dict(stack)
    return None if verdict.allowed else verdict.layer


def agrees_with_model(refusing: Refusing, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(CASES_PER_EXAMPLE):
        stack = random_stack(chance)
        model = model_of(stack)
        for value in chance.sample(VALUES, VALUES_PER_CASE):
            assert refusing(stack, value) == model_refusing(model, value), (stack, value)


@settings(max_examples=CASES // CASES_PER_EXAMPLE, derandomize=True)
@given(st.integers(0, 2**64))
def test_every_verdict_and_its_layer_are_those_of_the_model(seed: int) -> None:
    agrees_with_model(refusing_layer, seed)


def _union(stack: rules.Layers, value: str) -> Layer | None:
    """Wrong: one layer's allow is enough."""
    refused = [refusing_layer([layer], value) for layer in stack]
    return next(iter(refused)) if all(refused) else None


def _nearest_wins(stack: rules.Layers, value: str) -> Layer | None:
    """Wrong: the narrowest layer that names regions overrules the others."""
    with_regions = [layer for layer in stack if layer[1].regions != Choice()]
    return refusing_layer(with_regions[-1:], value)


def _allow_beats_deny(stack: rules.Layers, value: str) -> Layer | None:
    """Wrong: a project's allow brings back what a layer above denies."""
    allowed_below = patterns.naming(stack[-1][1].regions.allow or [], value)
    return None if allowed_below else refusing_layer(stack, value)


def _no_patterns(stack: rules.Layers, value: str) -> Layer | None:
    """Wrong: `*` is a letter like any other."""
    for layer, overlay in stack:
        choice = overlay.regions
        if value in choice.deny or (choice.allow is not None and value not in choice.allow):
            return layer
    return None


def _last_layer_named(stack: rules.Layers, value: str) -> Layer | None:
    """Wrong: the verdict is right, the layer it names is not the first."""
    return refusing_layer(list(reversed(stack)), value)


@pytest.mark.parametrize("wrong", [_union, _nearest_wins, _allow_beats_deny, _no_patterns, _last_layer_named])
def test_the_check_catches_rules_that_are_wrong(wrong: Refusing) -> None:
    with pytest.raises(AssertionError):
        agrees_with_model(wrong, seed=1)


def overlays() -> st.SearchStrategy[Overlay]:
    entries = st.lists(st.sampled_from(ENTRIES), max_size=4, unique=True)
    numbers = st.none() | st.integers(0, 9)
    choices = st.builds(Choice, allow=st.none() | entries, deny=entries)
    return st.builds(Overlay, regions=choices, allocations_max=numbers, instances_max=numbers)


stacks = st.tuples(overlays(), overlays(), overlays()).map(lambda drawn: list(zip(LAYERS, drawn, strict=True)))


@settings(max_examples=300)
@given(stacks)
def test_each_layer_allows_a_part_of_what_the_layers_above_it_allow(stack: rules.Layers) -> None:
    reached = [_allowed(stack[:depth]) for depth in (1, 2, 3)]
    assert reached[2] <= reached[1] <= reached[0]
    for name in LIMITS:
        numbers = [limit.max for depth in (1, 2, 3) if (limit := rules.limit(stack[:depth], name)) is not None]
        assert numbers == sorted(numbers, reverse=True)


@settings(max_examples=300)
@given(stacks)
def test_what_global_denies_stays_denied_with_any_layers_below(stack: rules.Layers) -> None:
    for value in VALUES:
        if patterns.naming(stack[0][1].regions.deny, value) is not None:
            verdict = rules.verdict(stack, "region", value)
            assert (verdict.allowed, verdict.layer) == (False, "global")


@settings(max_examples=300)
@given(stacks)
def test_the_merged_overlay_decides_as_all_layers_together(stack: rules.Layers) -> None:
    merged = rules.merged(stack)
    assert _allowed([("project", merged)]) == _allowed(stack) == model_allowed(model_of(stack)) & frozenset(VALUES)
    for name in LIMITS:
        numbers = [number for _, overlay in stack if (number := getattr(overlay, name)) is not None]
        assert getattr(merged, name) == min(numbers, default=None)


@settings(max_examples=500)
@given(stacks)
def test_an_entry_is_ineffective_by_as_much_as_the_model_takes_from_it(stack: rules.Layers) -> None:
    """Every entry has at most two letters and the model four, so no finite list exhausts a pattern by accident."""
    reported = {item.entry: item for item in ineffective.of_last_layer(stack) if item.field == "regions.allow"}
    own = Overlay(regions=Choice(deny=stack[-1][1].regions.deny))
    left_above = model_allowed(model_of(stack[:-1]))
    left = model_allowed(model_of([*stack[:-1], ("project", own)]))
    for entry in stack[-1][1].regions.allow or []:
        meant = written_out(entry)
        expected = "whole" if not meant & left else None if meant <= left_above else "part"
        assert (reported[entry].extent if entry in reported else None) == expected, entry


def test_the_smallest_limit_holds_and_the_first_layer_that_sets_it_is_named() -> None:
    stack = _stack(Overlay(instances_max=5), Overlay(instances_max=2, reason="shared"), Overlay(instances_max=2))
    limit = rules.limit(stack, "instances_max")
    assert limit is not None
    assert (limit.max, limit.layer, limit.rule) == (2, "org", "policy of org sets instances_max to 2 (shared)")
    rules.check_limit(stack, "instances_max", present=1, asked=1)
    with pytest.raises(errors.PolicyDenied) as refused:
        rules.check_limit(stack, "instances_max", present=2, asked=1)
    assert (refused.value.details["layer"], refused.value.details["max"], refused.value.details["present"]) == (
        "org",
        2,
        2,
    )


def test_a_rule_in_words_names_the_layer_the_entry_and_the_reason() -> None:
    overlay = Overlay(regions=Choice(allow=["eu-*"], deny=["eu-test"]), reason="data stays in Europe")
    stack = _stack(Overlay(), overlay, Overlay())
    words = {value: rules.verdict(stack, "region", value).rule for value in ("eu-1", "eu-test", "us-1")}
    assert words == {
        "eu-1": "policy of org allows regions eu-*",
        "eu-test": "policy of org denies regions eu-test (data stays in Europe)",
        "us-1": "policy of org allows only regions eu-* (data stays in Europe)",
    }
    assert rules.verdict(stack, "sku", "big").rule == "no layer denies big or has a list of allowed skus"


def test_an_empty_allow_list_allows_nothing() -> None:
    verdict = rules.verdict(_stack(Overlay(apps=Choice(allow=[])), Overlay(), Overlay()), "app", "toy")
    assert (verdict.allowed, verdict.layer) == (False, "global")


def test_entries_are_kept_trimmed_and_once() -> None:
    kept = rules.sound(Overlay(skus=Choice(allow=[" a ", "a", "b*"], deny=["  c"]), reason=" why "))
    assert kept == Overlay(skus=Choice(allow=["a", "b*"], deny=["c"]), reason="why")


@pytest.mark.parametrize(
    ("overlay", "field"),
    [
        (Overlay(regions=Choice(allow=["a"] * 1001)), "regions.allow"),
        (Overlay(skus=Choice(deny=["a" * 201])), "skus.deny"),
        (Overlay(apps=Choice(deny=["  "])), "apps.deny"),
        (Overlay(artifact_sources=Choice(allow=["registry/*/image"])), "artifact_sources.allow"),
        (Overlay(artifact_sources=Choice(allow=["a\nb"])), "artifact_sources.allow"),
        (Overlay(members_per_instance_max=-1), "members_per_instance_max"),
        (Overlay(reason="x" * 501), "reason"),
    ],
)
def test_an_overlay_that_cannot_be_kept_is_refused_by_field(overlay: Overlay, field: str) -> None:
    with pytest.raises(errors.ValidationFailed) as refused:
        rules.sound(overlay)
    assert refused.value.details["field"] == field


def random_stack(chance: random.Random) -> rules.Layers:
    return [(layer, Overlay(regions=_random_choice(chance))) for layer in LAYERS]


def _random_choice(chance: random.Random) -> Choice:
    allow = None if chance.random() < 0.4 else chance.sample(ENTRIES, chance.randrange(8))
    return Choice(allow=allow, deny=chance.sample(ENTRIES, chance.choice((0, 0, 0, 1, 2))))


def _allowed(stack: rules.Layers) -> frozenset[str]:
    return frozenset(value for value in VALUES if rules.verdict(stack, "region", value).allowed)


def _stack(*overlays: Overlay) -> rules.Layers:
    return list(zip(LAYERS, overlays, strict=True))


def test_an_overlay_that_requires_no_card_is_stored_as_before_and_any_layer_can_require_one() -> None:
    plain = rules.sound(Overlay(conformance_required=False))
    assert "conformance_required" not in msgspec.to_builtins(plain)
    assert rules.requirement([("global", plain), ("org", plain)]) is None
    strict = rules.sound(Overlay(conformance_required=True, reason="production"))
    layers: rules.Layers = [("global", plain), ("org", strict), ("project", plain)]
    required = rules.requirement(layers)
    assert required is not None
    assert (required.layer, rules.merged(layers).conformance_required) == ("org", True)
