"""Pure: every forgery of rows or heads is seen and its position named; without heads some forgeries pass."""

import random

import audit_tamper as tampering
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_platform.record import chain

ROUNDS = 1_000


@pytest.mark.parametrize("tamper", tampering.TAMPERINGS, ids=lambda tamper: tamper.__name__)
def test_every_forgery_is_seen_and_its_position_named(tamper: tampering.Tamper) -> None:
    for seed in range(ROUNDS):
        dice = random.Random(seed)
        rows = tampering.honest_rows(dice, dice.randint(2, 40))
        heads = tampering.honest_heads(dice, rows)
        assert tampering.verdict(rows, heads) is None
        done = tamper(dice, rows)
        finding = tampering.verdict(done.rows, heads)
        assert finding is not None, seed
        if done.only_heads_tell:
            vouched = max((head.position for head in heads if head.position < done.first), default=0)
            assert vouched < finding.position <= done.first, (seed, finding, done.first)
        else:
            assert finding.position == done.first, (seed, finding, done.first)


@pytest.mark.parametrize("tamper", [tampering.cut_tail, tampering.rewrite_suffix])
def test_without_heads_a_cut_tail_and_a_rewritten_suffix_are_not_detected(
    tamper: tampering.Tamper,
) -> None:
    for seed in range(100):
        dice = random.Random(seed)
        rows = tampering.honest_rows(dice, 20)
        assert tampering.verdict(tamper(dice, rows).rows, []) is None


def test_a_walk_reports_the_last_position_that_a_head_vouches_for() -> None:
    rows = tampering.honest_rows(random.Random(1), 20)
    walk = chain.Walk(tampering.CHAIN, [tampering.head(1, rows[11])])
    walk.feed(rows)
    assert (walk.end(), walk.vouched, walk.position) == (None, 12, 20)


def _forgeries(rows: tampering.Rows) -> dict[str, tampering.Rows]:
    """Return one forgery of each kind, by the kind that the chain reports."""
    swapped = [*rows[:3], rows[5]._replace(position=4), rows[4], rows[3]._replace(position=6), *rows[6:]]
    forged = tampering.following(rows[:4], tampering.entry(random.Random(2), 0))
    rewritten = tampering.following(rows[:9], tampering.entry(random.Random(2), 0))
    return {
        "edited": [*rows[:4], rows[4]._replace(document=rows[5].document), *rows[5:]],
        "deleted": [*rows[:4], *rows[5:]],
        "reordered": swapped,
        "inserted": tampering.renumbered([*rows[:4], forged, *rows[4:]]),
        "truncated": rows[:9],
        "rewritten": [*rows[:9], rewritten],
    }


@pytest.mark.parametrize("kind", ["edited", "deleted", "reordered", "inserted", "truncated", "rewritten"])
def test_each_kind_of_forgery_is_called_by_its_name(kind: str) -> None:
    rows = tampering.honest_rows(random.Random(1), 10)
    finding = tampering.verdict(_forgeries(rows)[kind], [tampering.head(1, rows[9])])
    assert finding is not None
    assert finding.kind == kind


def test_a_copied_column_that_differs_from_the_document_is_an_edit() -> None:
    rows = tampering.honest_rows(random.Random(1), 5)
    hidden = [*rows[:2], rows[2]._replace(project_id="proj_other"), *rows[3:]]
    finding = tampering.verdict(hidden, [])
    assert finding is not None
    assert (finding.kind, finding.position) == ("edited", 3)


def _forged_heads(rows: tampering.Rows, lines: list[bytes]) -> dict[str, list[bytes]]:
    """Return files of heads in which the second line is forged, or a line is missing."""
    first, second, third = lines
    other = chain.sign(Ed25519PrivateKey.generate(), msgspec.json.decode(second, type=chain.Head))
    return {
        "another hash": [first, second.replace(rows[5].hash.encode(), rows[4].hash.encode()), third],
        "another key": [first, msgspec.json.encode(other), third],
        "no head": [first, b"{}", third],
        "another chain": [first, second.replace(b"org_test", b"org_else"), third],
        "the second is removed": [first, third],
        "the first is removed": [second, third],
        "two are swapped": [second, first, third],
    }


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("another hash", "head forged"),
        ("another key", "head forged"),
        ("no head", "head forged"),
        ("another chain", "head forged"),
        ("the second is removed", "head missing"),
        ("the first is removed", "head missing"),
        ("two are swapped", "head missing"),
    ],
)
def test_a_heads_file_with_a_line_changed_removed_or_signed_with_another_key_is_rejected(case: str, kind: str) -> None:
    rows = tampering.honest_rows(random.Random(1), 9)
    lines = tampering.heads_file([rows[2], rows[5], rows[8]])
    public = tampering.KEY.public_key()
    assert chain.check_file(tampering.CHAIN, lines, public)[1] == []
    heads, findings = chain.check_file(tampering.CHAIN, _forged_heads(rows, lines)[case], public)
    assert [finding.kind for finding in findings] == [kind]
    assert all(head.position < findings[0].position <= 6 for head in heads)
