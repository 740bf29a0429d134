"""The record of what an app changes on a machine."""

from pathlib import Path

import msgspec
import pytest
from gpuaas_sdk.failures import Refused, Temporary
from gpuaas_sdk.installs import Receipt, UnitBefore, receipts
from gpuaas_sdk.machine import Machine, Ran
from gpuaas_sdk.testing import FakeHost
from kv_footprint import KV, receipt_of
from local_shell import printed

EARLIER = b"""{
  "instance_id": "inst_1", "roles": ["server"], "packages": ["kv-server"], "paths": ["/etc/kv"],
  "folders_to_empty": [], "users": ["kv"], "groups": ["kv"],
  "units": [{"name": "kv.service", "enabled": "not-found", "active": "inactive"}], "contents": {}
}"""
"""A receipt as an earlier release wrote it: without `automatic`."""


def _host(inspection: str = "") -> FakeHost:
    return FakeHost("gpu-1", scripts=lambda text: Ran(0, inspection, "") if receipts.INSPECT in text else None)


def test_what_was_absent_at_first_is_on_the_receipt() -> None:
    inspection = "absent /etc/kv\nempty /var/lib/kv\nno-user kv\nno-group kv\npresent /etc/default/kv\n"
    inspection += "unit kv.service not-found inactive\ncontent /etc/default/kv YQ==\n"
    receipt = receipts.first_receipt(KV, "inst_1", "gpu-1", inspection)
    assert (receipt.paths, receipt.folders_to_empty) == (["/etc/kv"], ["/var/lib/kv"])
    assert (receipt.users, receipt.groups) == (["kv"], ["kv"])
    assert receipt.units == [UnitBefore("kv.service", "not-found", "inactive")]
    assert receipt.contents == {"/etc/default/kv": "YQ=="}


def test_a_machine_with_another_installation_is_refused() -> None:
    with pytest.raises(Refused, match=r"gpu-1 already has KV files that this app did not write: /etc/kv/kv\.conf"):
        receipts.first_receipt(KV, "inst_1", "gpu-1", "present /etc/kv/kv.conf\n")


def test_a_receipt_survives_being_written_and_read() -> None:
    receipt = receipt_of("server")
    assert msgspec.json.decode(msgspec.json.encode(receipt), type=Receipt) == receipt


async def test_a_receipt_of_an_earlier_release_is_read() -> None:
    host = _host()
    host.files["/var/lib/gpuaas-app/kv/inst_1.json"] = EARLIER
    receipt = await receipts.read(Machine(host), KV, "inst_1")
    assert receipt is not None
    assert (receipt.roles, receipt.automatic) == (["server"], [])


async def test_the_first_inspection_counts_and_a_second_role_is_added_to_the_receipt() -> None:
    inspections = ["absent /etc/kv\nno-user kv\n", "present /etc/kv\npresent /etc/kv/kv.conf\n"]
    host = FakeHost("gpu-1", scripts=lambda text: Ran(0, inspections.pop(0), "") if receipts.INSPECT in text else None)
    machine = Machine(host)
    await receipts.open_for(machine, KV, "inst_1", ("server",))
    receipt = await receipts.open_for(machine, KV, "inst_1", ("server", "proxy"))
    assert (receipt.roles, receipt.paths) == (["server", "proxy"], ["/etc/kv"])
    assert await receipts.read(machine, KV, "inst_1") == receipt


async def test_users_are_noted_before_they_are_made_and_only_once() -> None:
    host = _host("no-user ada\nno-group ada\n")
    machine = Machine(host)
    await receipts.add_users(machine, KV, "inst_1", ["ada"])
    assert host.files == {}, "an instance without a receipt has changed nothing"
    await receipts.write(machine, KV, receipt_of("server"))
    for _ in range(2):
        await receipts.add_users(machine, KV, "inst_1", ["ada"])
    receipt = await receipts.read(machine, KV, "inst_1")
    assert receipt is not None
    assert (receipt.users, receipt.groups) == (["kv", "ada"], ["kv", "ada"])


async def test_other_instances_are_found_by_their_receipts() -> None:
    listed = "".join(f"{receipts.path_of(KV, instance_id)}\n" for instance_id in ("inst_1", "inst_2"))
    machine = Machine(FakeHost("gpu-1", lambda argv: Ran(0, listed if argv[0] == "find" else "", "")))
    assert await receipts.others(machine, KV, "inst_1") == ("inst_2",)


async def test_receipts_that_cannot_be_listed_are_not_taken_for_none() -> None:
    """Otherwise the machine of another instance would be taken over."""

    def answer(argv: tuple[str, ...]) -> Ran:
        return Ran(1, "", "Input/output error") if argv[0] == "find" else Ran(0, "", "")

    with pytest.raises(Temporary, match=r"cannot read /var/lib/gpuaas-app/kv of gpu-1: Input/output error"):
        await receipts.others(Machine(FakeHost("gpu-1", answer)), KV, "inst_1")
    absent = Machine(FakeHost("gpu-1", lambda argv: Ran(1, "", "No such file or directory")))
    assert await receipts.others(absent, KV, "inst_1") == ()


def test_the_inspection_shows_what_a_real_machine_has(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("a")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / ".hidden").write_text("a")
    asked = [
        *("path", f"{tmp_path}/gone", "path", f"{tmp_path}/empty", "path", f"{tmp_path}/file"),
        *("path", f"{tmp_path}/used", "content", f"{tmp_path}/file"),
        *("user", "root", "user", "oot", "user", "no-such-user", "group", "root", "group", "no-such-group"),
    ]
    assert printed(receipts.INSPECT, *asked) == [
        f"absent {tmp_path}/gone",
        f"empty {tmp_path}/empty",
        f"present {tmp_path}/file",
        f"present {tmp_path}/used",
        f"content {tmp_path}/file YQ==",
        "no-user oot",
        "no-user no-such-user",
        "no-group no-such-group",
    ]
