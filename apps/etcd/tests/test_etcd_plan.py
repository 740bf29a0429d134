"""The decisions of the etcd app."""

import pytest
from gpuaas_app_etcd import checks, plan
from gpuaas_app_etcd.plan import Peer
from gpuaas_app_etcd.workload.footprint import ETCD, ROLE
from gpuaas_sdk.installs import receipts
from gpuaas_sdk.installs.undo import undo

FIRST, SECOND = Peer(1, "alloc_1", ("https://10.0.0.1:2380",)), Peer(2, "alloc_2", ("https://10.0.0.2:2380",))
NEW = Peer(3, "", ("https://10.0.0.3:2380",), learner=True)


def test_a_member_is_found_by_its_name_and_before_its_first_start_by_its_address() -> None:
    assert plan.find((FIRST, SECOND, NEW), "alloc_2", "10.0.0.9") == SECOND
    assert plan.find((FIRST, SECOND, NEW), "alloc_3", "10.0.0.3") == NEW
    assert plan.find((FIRST, SECOND, NEW), "alloc_4", "10.0.0.1") is None


def test_learners_of_others_that_never_started_are_removed_before_a_machine_joins() -> None:
    started = Peer(4, "alloc_4", ("https://10.0.0.4:2380",), learner=True)
    assert plan.stale((FIRST, NEW, started), None, has_data=False) == [NEW]
    assert plan.stale((FIRST, NEW), NEW, has_data=False) == []


def test_a_member_that_lost_its_data_is_removed_before_it_joins_again() -> None:
    assert plan.stale((FIRST, SECOND), SECOND, has_data=False) == [SECOND]
    assert plan.stale((FIRST, SECOND), SECOND, has_data=True) == []


def test_the_first_start_lists_all_members_and_the_new_one_by_its_name() -> None:
    listed = plan.initial_cluster((FIRST, NEW), {"https://10.0.0.3:2380": "alloc_3"})
    assert listed == "alloc_1=https://10.0.0.1:2380,alloc_3=https://10.0.0.3:2380"


def test_addresses_of_ipv6_are_in_brackets() -> None:
    assert plan.url("fd00::1", plan.CLIENT_PORT) == "https://[fd00::1]:2379"


@pytest.mark.parametrize(
    ("before", "after", "is_refused"),
    [
        ("3.5.16-4", "3.5.30-2", False),
        ("3.5.30-2", "3.5.16-4", False),
        ("3.4.23-4+b4", "3.5.16-4", False),
        ("3.5.16-4", "3.4.23-4+b4", True),
        ("3.4.23-4", "3.6.0-1", True),
        ("3.6.0-1", "4.0.0-1", True),
    ],
)
def test_versions_change_by_one_minor_version_upwards_and_freely_within_it(
    before: str, after: str, is_refused: bool
) -> None:
    assert bool(plan.version_refusal(before, after)) is is_refused


def test_a_member_is_healthy_only_if_its_answer_is_true() -> None:
    assert checks.healthy("gpu-1", {"health": "true"}).ok
    check = checks.healthy("gpu-1", {"health": "false", "reason": "RAFT NO LEADER"})
    assert (check.ok, check.reason) == (False, "etcd on gpu-1 is not healthy: RAFT NO LEADER")
    assert not checks.healthy("gpu-1", {}).ok


def test_an_alarm_is_distinguished_from_a_member_that_is_away() -> None:
    assert checks.no_alarm({"gpu-1": "it does not answer"}).ok
    assert not checks.no_alarm({"gpu-1": "etcd on gpu-1 is not healthy: ALARM NOSPACE"}).ok


def test_packages_that_were_unpacked_from_a_bundle_are_deleted_with_the_member() -> None:
    receipt = receipts.Receipt(instance_id="inst_1", roles=[ROLE])  # it does not list them
    assert ETCD.packages_folder in undo(ETCD, receipt, ROLE).paths
