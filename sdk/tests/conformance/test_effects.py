"""The ledger of a simulated machine: what changed, and what changed twice."""

from gpuaas_sdk.conformance import SimulatedMachine, effects
from gpuaas_sdk.conformance.machines import OBSERVER, UNIT_FOLDER
from gpuaas_sdk.machine import Ran, shell

UNIT = "kv.service"


def machine() -> SimulatedMachine:
    return SimulatedMachine("n1", lambda machine, argv, data: None, files={f"{UNIT_FOLDER}{UNIT}": b""})


def put(path: str, content: bytes) -> tuple[str, ...]:
    return ("sh", "-c", shell.PUT, "put", path, "0644", "", str(len(content)))


async def changed(on: SimulatedMachine, argv: tuple[str, ...], data: bytes = b"", user: str = "op_1.1") -> list[str]:
    """Run the command and return what it changed."""
    on.ledger.clear()
    await on.execute(argv, user, data)
    return [effect.what for effect in on.ledger]


async def test_a_file_that_is_put_twice_changes_once() -> None:
    on = machine()
    assert await changed(on, put("/etc/kv", b"1"), b"1") == ["file /etc/kv"]
    assert await changed(on, put("/etc/kv", b"1"), b"1") == []
    assert await changed(on, put("/etc/kv", b"12"), b"12") == ["file /etc/kv"]


async def test_a_unit_starts_once_and_restarts_each_time() -> None:
    on = machine()
    assert await changed(on, ("systemctl", "start", UNIT)) == [f"unit {UNIT}", f"start {UNIT}"]
    assert await changed(on, ("systemctl", "start", UNIT)) == []
    assert await changed(on, ("systemctl", "restart", UNIT)) == [f"start {UNIT}"]


async def test_what_the_machines_of_a_cluster_agree_on_is_in_the_ledger() -> None:
    members: dict[str, dict[str, bool]] = {"n1": {"votes": False}}

    def promote(machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        machine.network["n1"]["votes"] = True
        return Ran(0, "", "")

    on = SimulatedMachine("n1", promote, network=members)
    assert [await changed(on, ("promote",)) for _ in range(2)] == [["network n1"], []]


async def test_a_command_that_is_refused_has_no_effect() -> None:
    assert await changed(machine(), put("/etc/kv", b"1"), b"1", OBSERVER) == []


def test_an_effect_is_doubled_if_it_happens_more_often_than_undisturbed() -> None:
    assert effects.doubled(["a", "b", "b"], ["b", "a", "b"]) == []
    assert effects.doubled(["a", "b"], ["b", "a", "b", "c"]) == ["b", "c"]
