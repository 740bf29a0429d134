"""Names, addresses and subnets are decided without touching the host."""

import pytest
from gpuaas_lab import errors, plan


def lab(*names: str) -> plan.LabRecord:
    return plan.add_machines(plan.LabRecord("local", "10.83.0.0/24"), names, gpus=2, image="image")


def test_link_names_fit_into_an_interface_name() -> None:
    assert len(plan.bridge_name("a" * 16)) <= 15
    assert len(plan.veth_name("a" * 16, 250)) <= 15


def test_two_labs_share_no_link_name() -> None:
    assert plan.bridge_name("one") != plan.bridge_name("two")
    assert not plan.veth_name("two", 11).startswith(plan.veth_prefix("one"))


@pytest.mark.parametrize("name", ["", "A", "with-hyphen", "1st", "x" * 17, "a/b", "a b"])
def test_an_ambiguous_lab_name_is_refused(name: str) -> None:
    with pytest.raises(errors.UsageError):
        plan.check_lab_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "Gpu", "a.b", "..", "a/b", "x" * 40])
def test_a_machine_name_that_is_not_a_host_name_is_refused(name: str) -> None:
    with pytest.raises(errors.UsageError):
        plan.check_machine_name(name)


def test_a_lab_always_prefers_the_same_subnet() -> None:
    assert plan.choose_subnet("local", []) == plan.choose_subnet("local", [])


def test_a_subnet_in_use_is_not_chosen() -> None:
    first = plan.choose_subnet("local", [])
    second = plan.choose_subnet("local", [first])
    assert second != first
    assert plan.choose_subnet("local", [first, second]) not in (first, second)


def test_a_subnet_inside_a_wider_route_is_not_chosen() -> None:
    wide = [f"10.{second}.0.0/16" for second in range(83, 99)]
    assert plan.choose_subnet("local", wide) == "10.99.0.0/24"


def test_a_host_without_a_free_subnet_is_refused() -> None:
    with pytest.raises(errors.LabError, match="no free /24"):
        plan.choose_subnet("local", ["10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("used", "taken"),
    [
        (["10.83.0.0/24"], True),
        (["192.0.2.0/24", "10.83.0.1/32"], True),
        (["10.0.0.0/8", "10.83.1.0/24", "fd00::/8"], False),
    ],
    ids=["the same subnet", "an address in it", "wider, beside it and IPv6"],
)
def test_a_subnet_is_taken_by_addresses_in_it_and_not_by_a_wider_route(used: list[str], taken: bool) -> None:
    assert plan.is_taken("10.83.0.0/24", used) is taken


def test_nodes_get_the_address_of_their_number() -> None:
    record = lab("gpu-1", "gpu-2")
    assert [record.address(machine) for machine in record.machines.values()] == ["10.83.0.11", "10.83.0.12"]


def test_a_machine_with_any_name_gets_a_free_address() -> None:
    record = lab("login", "gpu-1", "gpu-300")
    assert len({machine.host_number for machine in record.machines.values()}) == 3


def test_machines_on_record_keep_address_and_image() -> None:
    before = lab("gpu-1")
    after = plan.add_machines(before, ["gpu-1", "gpu-2"], gpus=4, image="newer")
    assert after.machines["gpu-1"] == before.machines["gpu-1"]
    assert after.machines["gpu-2"].image == "newer"


def test_a_full_lab_is_refused_with_the_next_command() -> None:
    with pytest.raises(errors.LabError, match="gpuaas-lab remove"):
        lab(*plan.node_names(241))


def test_the_next_nodes_fill_gaps_first() -> None:
    assert plan.next_node_names({"gpu-1", "gpu-3", "login"}, 3) == ["gpu-2", "gpu-4", "gpu-5"]


def test_a_lab_is_unchanged_after_json() -> None:
    record = plan.set_packages(lab("gpu-1", "login"), "abc")
    assert plan.from_json(plan.to_json(record)) == record


def test_a_removed_machine_frees_its_address() -> None:
    record = plan.remove_machines(lab("gpu-1", "gpu-2"), ["gpu-1"])
    assert list(record.machines) == ["gpu-2"]
    assert plan.add_machines(record, ["gpu-1"], gpus=2, image="image").machines["gpu-1"].host_number == 11


def test_fake_gpus_are_distinct_and_never_the_null_device() -> None:
    devices = plan.gpu_devices(16)
    assert len(set(devices)) == 16
    assert (1, 3) not in devices


def test_hosts_lists_gateway_and_machines() -> None:
    text = plan.hosts_text("", lab("gpu-1", "gpu-2"), "gpu-2")
    assert "10.83.0.1 gateway" in text
    assert text.index("gpu-2") < text.index("gpu-1"), "its own name comes first"


def test_hosts_keeps_other_lines_and_replaces_the_labs_block() -> None:
    first = plan.hosts_text("192.0.2.7 storage\n", lab("gpu-1"), "gpu-1")
    second = plan.hosts_text(first + "192.0.2.8 later\n", lab("gpu-1", "gpu-2"), "gpu-1")
    assert "192.0.2.7 storage\n" in second
    assert "192.0.2.8 later\n" in second
    assert second.count(plan.HOSTS_BEGIN) == 1
    assert plan.hosts_text(second, lab("gpu-1", "gpu-2"), "gpu-1") == second


def test_a_package_list_may_have_comments_blank_lines_and_duplicates() -> None:
    assert plan.parse_package_list("# tools\nzsh\n\njq # json\njq\n") == ["jq", "zsh"]


@pytest.mark.parametrize("line", ["two names", "--option", "Upper", "a;b"])
def test_a_line_that_is_not_a_package_name_is_refused(line: str) -> None:
    with pytest.raises(errors.UsageError):
        plan.parse_package_list(line)


@pytest.mark.parametrize(
    ("present", "installed", "may"),
    [
        ("", "", True),
        ("old", "old", True),
        ("new", "old", True),
        ("", "old", True),
        ("old", "", True),
        ("released", "old", False),
    ],
)
def test_an_agent_is_updated_unless_it_was_upgraded(present: str, installed: str, may: bool) -> None:
    assert plan.may_renew_agent(present=present, wanted="new", installed=installed) is may


def test_a_record_of_an_earlier_release_has_no_toolchain() -> None:
    stored = plan.to_json(plan.LabRecord("local", "10.83.0.0/24"))
    del stored["toolchain"]
    assert plan.from_json(stored).toolchain is False


def test_the_toolchain_is_remembered_when_machines_are_added_and_removed() -> None:
    record = plan.from_json(plan.to_json(plan.LabRecord("local", "10.83.0.0/24", toolchain=True)))
    record = plan.add_machines(record, ["gpu-1", "gpu-2"], gpus=2, image="new")
    assert plan.remove_machines(record, ["gpu-2"]).toolchain
    assert plan.machines_without(record, "newer") == ["gpu-1", "gpu-2"]
