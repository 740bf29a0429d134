"""What is undone on a machine when a role is removed from it."""

import msgspec
from gpuaas_sdk.installs import undo
from kv_footprint import KV, receipt_of


def test_with_the_last_role_everything_on_the_receipt_is_undone() -> None:
    plan = undo.undo(KV, receipt_of("server"), "server")
    assert plan.last
    assert (plan.packages, plan.users, plan.empty_folders) == (("kv-server",), ("kv",), ("/var/lib/kv",))
    assert plan.stop_units == ("gpuaas-kv-health", "kv-proxy", "kv"), "services of the app itself first"


def test_paths_that_only_the_app_makes_are_removed_even_if_the_receipt_is_older() -> None:
    receipt = receipt_of("server")
    assert undo.undo(KV, receipt, "server").paths == ("/etc/kv", *KV.own_paths)
    listed = msgspec.structs.replace(receipt, paths=[*receipt.paths, *KV.own_paths])
    assert undo.undo(KV, listed, "server").paths == ("/etc/kv", *KV.own_paths)


def test_packages_that_only_others_needed_are_marked_so_again_with_the_last_role() -> None:
    receipt = msgspec.structs.replace(receipt_of("server"), automatic=["libkv"])
    assert undo.undo(KV, receipt, "server").automatic == ("libkv",)
    receipt.roles.append("proxy")
    assert undo.undo(KV, receipt, "server").automatic == ()


def test_while_another_role_stays_only_the_roles_own_parts_are_undone() -> None:
    receipt = receipt_of("server", "proxy")
    proxy, server = undo.undo(KV, receipt, "proxy"), undo.undo(KV, receipt, "server")
    assert proxy == undo.Undo(stop_units=("kv-proxy",), paths=("/etc/kv/proxy.conf",), roles_staying=("server",))
    assert server == undo.Undo(stop_units=("kv",), empty_folders=("/var/lib/kv",), roles_staying=("proxy",))


def test_units_that_did_not_exist_are_not_restored_and_those_that_ran_are_not_stopped() -> None:
    receipt = receipt_of("server")
    running = [msgspec.structs.replace(unit, enabled="enabled", active="active") for unit in receipt.units]
    assert [unit.name for unit in undo.undo(KV, receipt, "server").restore_units] == ["database.service"]
    ran_before = undo.undo(KV, msgspec.structs.replace(receipt, units=running), "server")
    assert "kv" not in ran_before.stop_units


def test_what_remains_on_a_silent_machine_is_described_with_the_path_of_the_receipt() -> None:
    text = undo.left_behind(KV, "inst_1", ["server"])
    assert text.startswith("KV (server) was not removed")
    assert text.endswith("/var/lib/gpuaas-app/kv/inst_1.json")
