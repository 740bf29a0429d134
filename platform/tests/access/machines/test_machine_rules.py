"""The terms of a certificate, decided from the allocation and what the caller asks for."""

import datetime

import pytest
from gpuaas_contract.capacity import Allocation
from gpuaas_platform.access.machines import rules

NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
ALLOCATION = Allocation(
    allocation_id="alloc_1",
    org_id="org_1",
    project_id="proj_1",
    status="active",
    status_reason="",
    node_id="node_1",
    node_name="gpu-1",
    address="192.0.2.1",
    sku="standard",
    region="local",
    gpus=0,
    username_on_node="gpu-abc",
    requested_by="user_1",
    correlation_id="cor_1",
    used_by_instance_ids=[],
    created_at=NOW,
    updated_at=NOW,
)


@pytest.mark.parametrize(("asked_s", "allowed_s", "granted_s"), [(600, 60, 60), (30, 60, 30)])
def test_a_certificate_is_valid_no_longer_than_the_platform_allows(
    asked_s: int, allowed_s: int, granted_s: int
) -> None:
    terms = _terms(asked_s, allowed_s)
    assert terms.valid_to - NOW == datetime.timedelta(seconds=granted_s)


def test_a_machine_whose_clock_is_an_hour_behind_accepts_a_new_certificate() -> None:
    assert _terms(600, 600).valid_from <= NOW - datetime.timedelta(hours=1)


def _terms(asked_s: int, allowed_s: int) -> rules.CertificateTerms:
    return rules.terms(
        ALLOCATION,
        rules.root_door(ALLOCATION),
        actor_id="user_1",
        held_id="",
        source="192.0.2.9",
        ttl_s=asked_s,
        ttl_max_s=allowed_s,
        now=NOW,
    )
