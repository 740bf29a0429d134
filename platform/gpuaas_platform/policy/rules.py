"""Pure: decide whether the overlays of several layers allow a value or a number, and which layer decides.

The layers are in order, global first. A layer can only restrict further: a value must be in every allow list, a deny
counts in any layer, and the smallest limit applies.
"""

from collections.abc import Sequence

import msgspec
from gpuaas_contract import errors
from gpuaas_contract import policy as contract
from gpuaas_contract.policy import (
    Choice,
    Layer,
    Limit,
    Overlay,
    PolicyLimit,
    PolicyRequirement,
    PolicyVerdict,
    Subject,
)

from gpuaas_platform.policy import patterns

Layers = Sequence[tuple[Layer, Overlay]]
_NAMED_MAX = 5


def verdict(layers: Layers, subject: Subject, value: str) -> PolicyVerdict:
    """Return the decision of the first layer that refuses; if none does, name the last layer that lists the value."""
    field = contract.SUBJECTS[subject]
    allowed_by: Layer | None = None
    rule = f"no layer denies {value} or has a list of allowed {field}"
    for layer, overlay in layers:
        choice = choice_of(overlay, field)
        denied = patterns.naming(choice.deny, value)
        if denied is not None:
            return _refused(subject, value, layer, overlay, f"denies {field} {denied}")
        if choice.allow is not None:
            entry = patterns.naming(choice.allow, value)
            if entry is None:
                return _refused(subject, value, layer, overlay, f"allows only {field} {listed(choice.allow)}")
            allowed_by, rule = layer, f"policy of {layer} allows {field} {entry}"
    return PolicyVerdict(subject=subject, value=value, allowed=True, layer=allowed_by, rule=rule)


def check(layers: Layers, subject: Subject, value: str) -> None:
    decided = verdict(layers, subject, value)
    if not decided.allowed:
        raise errors.PolicyDenied(
            f"{subject} {value} is refused: {decided.rule}.",
            details={"layer": decided.layer, "rule": decided.rule, "subject": subject, "value": value},
        )


def limit(layers: Layers, name: Limit) -> PolicyLimit | None:
    """Return the smallest limit of all layers, with the first layer that sets it."""
    limits = [(number, layer, overlay) for layer, overlay in layers if (number := number_of(overlay, name)) is not None]
    if not limits:
        return None
    number, layer, overlay = min(limits, key=lambda candidate: candidate[0])
    return PolicyLimit(limit=name, max=number, layer=layer, rule=words(layer, overlay, f"sets {name} to {number}"))


def check_limit(layers: Layers, name: Limit, *, present: int, asked: int) -> None:
    smallest = limit(layers, name)
    if smallest is not None and present + asked > smallest.max:
        details = {"layer": smallest.layer, "rule": smallest.rule, "limit": name, "max": smallest.max}
        raise errors.PolicyDenied(
            f"{smallest.rule[0].upper()}{smallest.rule[1:]}; there are {present}, and {asked} more would be too many.",
            details={**details, "present": present, "asked": asked},
        )


def requirement(layers: Layers) -> PolicyRequirement | None:
    """Return the first layer that lets a project deploy conforming app versions only; None if no layer does."""
    for layer, overlay in layers:
        if overlay.conformance_required is True:
            rule = words(layer, overlay, "allows only app versions with a trusted conformance card")
            return PolicyRequirement(requirement="conformance_required", layer=layer, rule=rule)
    return None


def merged(layers: Layers) -> Overlay:
    """Return one overlay that gives the same decisions as all layers together."""
    choices = {field: merged_choice(layers, field) for field in contract.SUBJECTS.values()}
    limits = {name: limit(layers, name) for name in contract.LIMITS}
    numbers = {name: smallest.max if smallest else None for name, smallest in limits.items()}
    required = True if requirement(layers) is not None else msgspec.UNSET
    return msgspec.structs.replace(Overlay(), conformance_required=required, **choices, **numbers)


def merged_choice(layers: Layers, field: str) -> Choice:
    allow: list[str] | None = None
    for _, overlay in layers:
        added = choice_of(overlay, field).allow
        if added is not None:
            entries = patterns.Entries(added)
            allow = entries.sorted if allow is None else entries.intersect(patterns.Entries(allow))
    denied = {entry for _, overlay in layers for entry in choice_of(overlay, field).deny}
    return Choice(allow=allow, deny=sorted(denied))


def sound(overlay: Overlay) -> Overlay:
    """Return the overlay as it is stored, with entries trimmed and without duplicates; refuse an invalid field."""
    choices = {field: _sound_choice(field, choice_of(overlay, field)) for field in contract.SUBJECTS.values()}
    for name in contract.LIMITS:
        if (number_of(overlay, name) or 0) < 0:
            raise errors.ValidationFailed("A limit of a policy must be 0 or more.", details={"field": name})
    if len(overlay.reason) > contract.REASON_LENGTH_MAX:
        raise errors.ValidationFailed(
            f"A reason has at most {contract.REASON_LENGTH_MAX} characters.", details={"field": "reason"}
        )
    required = overlay.conformance_required or msgspec.UNSET
    return msgspec.structs.replace(overlay, reason=overlay.reason.strip(), conformance_required=required, **choices)


def choice_of(overlay: Overlay, field: str) -> Choice:
    choice: Choice = getattr(overlay, field)
    return choice


def number_of(overlay: Overlay, name: Limit) -> int | None:
    number: int | None = getattr(overlay, name)
    return number


def words(layer: Layer, overlay: Overlay, what: str) -> str:
    return f"policy of {layer} {what}" + (f" ({overlay.reason})" if overlay.reason else "")


def listed(entries: Sequence[str]) -> str:
    more = f" and {len(entries) - _NAMED_MAX} more" if len(entries) > _NAMED_MAX else ""
    return (", ".join(entries[:_NAMED_MAX]) or "of an empty list") + more


def _refused(subject: Subject, value: str, layer: Layer, overlay: Overlay, what: str) -> PolicyVerdict:
    return PolicyVerdict(subject=subject, value=value, allowed=False, layer=layer, rule=words(layer, overlay, what))


def _sound_choice(field: str, choice: Choice) -> Choice:
    allow = None if choice.allow is None else _sound_entries(f"{field}.allow", choice.allow)
    return Choice(allow=allow, deny=_sound_entries(f"{field}.deny", choice.deny))


def _sound_entries(field: str, entries: Sequence[str]) -> list[str]:
    if len(entries) > contract.ENTRIES_MAX:
        raise errors.ValidationFailed(f"{field} has at most {contract.ENTRIES_MAX} entries.", details={"field": field})
    trimmed = list(dict.fromkeys(entry.strip() for entry in entries))
    for entry in trimmed:
        if not 1 <= len(entry) <= contract.ENTRY_LENGTH_MAX or not entry.isprintable():
            raise errors.ValidationFailed(
                f"An entry of {field} has 1 to {contract.ENTRY_LENGTH_MAX} printable characters.",
                details={"field": field, "entry": entry[: contract.ENTRY_LENGTH_MAX]},
            )
        if "*" in entry[:-1]:
            raise errors.ValidationFailed(
                f"{entry} in {field}: a * is allowed at the end only; it matches everything that starts so.",
                details={"field": field, "entry": entry},
            )
    return trimmed
