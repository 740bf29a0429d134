"""A simulated machine behaves as a machine over SSH: the real transport of the SDK connects to it."""

import socket

import asyncssh
import msgspec
import pytest
from gpuaas_contract.access import RequestMachineAccess
from gpuaas_sdk.conformance import Driver, SimulatedPackage, installs
from gpuaas_sdk.conformance.machines import SimulatedMachine, SimulatedMachines
from gpuaas_sdk.installs import package_changes, receipts, uninstall, units
from gpuaas_sdk.installs import packages as installed
from gpuaas_sdk.installs import removals as removed
from gpuaas_sdk.machine import (
    CommandFailed,
    File,
    MachineTarget,
    MachineUnreachable,
    Ran,
    RemoteWork,
    commands,
    connect,
)
from kv_footprint import KV

KEY = asyncssh.generate_private_key("ssh-ed25519").export_private_key("openssh").decode()


def respond(machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
    return Ran(0, data.decode().upper(), "") if argv == ("shout",) else None


def target(machines: SimulatedMachines, operation_id: str = "", instance_id: str = "") -> MachineTarget:
    request = RequestMachineAccess(public_key="", epoch=1, operation_id=operation_id, instance_id=instance_id)
    login = machines.locate("alloc_n1", request)
    return MachineTarget(
        host=login.host,
        port=login.port,
        user=login.user,
        host_public_key=login.host_public_key,
        private_key=KEY,
        is_privileged=bool(operation_id),
    )


async def test_files_units_and_programs_of_the_app() -> None:
    machines = SimulatedMachines(respond, lambda user: True)
    async with machines.serving(["n1"]), connect(target(machines, operation_id="op_1")) as machine:
        assert machine.hostname == "n1"
        assert (await machine.run("shout", input="hello")).stdout == "HELLO"
        assert [await machine.put("/etc/systemd/system/a.service", "x") for _ in range(2)] == [True, False]
        assert await machine.get("/etc/systemd/system/a.service") == b"x"
        await machine.run("systemctl", "enable", "--now", "a")
        assert (await machine.run("systemctl", "is-active", "a")).stdout == "active\n"
        assert (await machine.run("ls", "/etc/systemd/system")).stdout == "a.service\n"
        await machine.run("rm", "-rf", "/etc/systemd")
        assert await machine.get("/etc/systemd/system/a.service") is None
        with pytest.raises(CommandFailed, match=r"Unit b\.service not found"):
            await machine.run("systemctl", "start", "b")
        with pytest.raises(CommandFailed, match=r"Driver\.respond"):
            await machine.run("unknown")
        assert (await machine.script("true", check=False)).exit_status == 127
    assert {order.user for order in machines.machine("n1").ordered} == {"op_1.1"}


async def test_an_observer_changes_nothing() -> None:
    machines = SimulatedMachines(respond, lambda user: True)
    async with machines.serving(["n1"]):
        async with connect(target(machines, operation_id="op_1")) as machine:
            await machine.run("touch", "/etc/kv")
            await machine.put("/etc/systemd/system/kv.service", "x")
            await machine.run("systemctl", "restart", "kv")
        before = machines.machine("n1").content()
        async with connect(target(machines, instance_id="inst_1")) as machine:
            assert await machine.exists("/etc/kv")
            assert (await machine.run("systemctl", "is-active", "kv")).stdout == "active\n"
            for argv in (("rm", "/etc/kv"), ("touch", "/etc/other"), ("systemctl", "stop", "kv")):
                with pytest.raises(CommandFailed, match="Permission denied"):
                    await machine.run(*argv)
        assert machines.machine("n1").content() == before


async def test_an_error_of_the_driver_is_the_answer_to_the_command() -> None:
    """Without an answer, the controller would wait for a machine that seems to be away."""

    def broken(machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        if argv == ("kv",):
            raise KeyError("port")
        return None

    machines = SimulatedMachines(broken, lambda user: True)
    async with machines.serving(["n1"]), connect(target(machines, operation_id="op_1")) as machine:
        with pytest.raises(CommandFailed, match="the driver failed: KeyError: 'port'"):
            await machine.run("kv")


async def test_many_commands_in_one_round_trip_arrive_one_by_one() -> None:
    machines = SimulatedMachines(respond, lambda user: True)
    unit = File("/etc/systemd/system/kv.service", "x")
    async with machines.serving(["n1"]), connect(target(machines, operation_id="op_1")) as machine:
        put, loud, _, _, _, got = await machine.run_all(
            commands.put_all([unit, File("/etc/kv.key", b"\xff\x00")]),
            commands.run("shout", input="hello", as_user="kv"),
            units.enable("kv"),
            units.RELOAD,
            units.restart("kv"),
            commands.get_all("/etc/kv.key", "/absent"),
        )
        assert (put.stdout.split(), loud.stdout) == (["0", "1"], "HELLO")
        assert commands.contents(("/etc/kv.key", "/absent"), got.stdout) == {
            "/etc/kv.key": b"\xff\x00",
            "/absent": None,
        }
        assert await machine.get("/etc/kv.key") == b"\xff\x00"
        assert await machine.put_all([unit, File("/etc/kv.key", "new")]) == ("/etc/kv.key",)
        assert await machine.get_all("/etc/kv.key", "/absent") == {"/etc/kv.key": b"new", "/absent": None}
    simulated = machines.machine("n1")
    assert (simulated.units, simulated.starts) == ({"kv.service": "active"}, {"kv.service": 1})
    assert simulated.commands == 9


async def test_many_commands_stop_at_the_first_that_fails_unless_all_are_wanted() -> None:
    machines = SimulatedMachines(respond, lambda user: True)
    async with machines.serving(["n1"]), connect(target(machines, operation_id="op_1")) as machine:
        machines.machine("n1").fails_at = 2
        parts = [commands.run("true"), commands.run("mkdir", "/srv"), commands.run("true")]
        with pytest.raises(CommandFailed, match="mkdir /srv"):
            await machine.run_all(*parts)
        assert machines.machine("n1").commands == 2
        machines.machine("n1").fails_at = 2
        assert [ran.exit_status for ran in await machine.run_all(*parts, check=False)] == [0, 2, 0]


async def test_of_standard_input_only_scripts_are_recorded() -> None:
    machines = SimulatedMachines(respond, lambda user: True)
    async with machines.serving(["n1"]), connect(target(machines, operation_id="op_1")) as machine:
        await machine.put_all([File("/etc/kv.conf", "https://docs.example/kv")])
        await machine.run("shout", input="https://mirror.example")
        await machine.run_all(commands.script("curl https://evil.example"), check=False)
    recorded = " ".join(order.script for order in machines.machine("n1").ordered)
    assert "evil.example" in recorded
    assert "docs.example" not in recorded
    assert "mirror.example" not in recorded


async def test_an_observer_can_only_read() -> None:
    machines = SimulatedMachines(respond, lambda user: True)
    async with machines.serving(["n1"]), connect(target(machines, instance_id="inst_1")) as machine:
        with pytest.raises(CommandFailed, match="Permission denied"):
            await machine.put("/etc/file", "x")
        with pytest.raises(CommandFailed, match="Permission denied"):
            await machine.put_all([File("/etc/file", "x")])
        assert await machine.get("/etc/file") is None


async def test_a_machine_that_is_cut_off_is_unreachable_until_it_is_opened() -> None:
    machines = SimulatedMachines(respond, lambda user: True)
    async with machines.serving(["n1"]), connect(target(machines, operation_id="op_1")) as machine:
        machines.cut("n1")
        with pytest.raises(MachineUnreachable):
            await machine.run("true")
        await machines.open("n1")
        await machine.run("true")


async def test_no_other_process_can_take_the_port_of_a_machine_that_is_cut_off() -> None:
    machines = SimulatedMachines(respond, lambda user: True)
    async with machines.serving(["n1"]):
        machines.cut("n1")
        host, port = machines.address("n1").split(":")
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind((host, int(port)))
        with pytest.raises(MachineUnreachable):
            async with connect(target(machines, operation_id="op_1")):
                pass


async def test_access_ends_with_the_lease() -> None:
    machines = SimulatedMachines(respond, lambda user: user != "op_1.1")
    async with machines.serving(["n1"]), connect(target(machines, operation_id="op_1")) as machine:
        with pytest.raises(CommandFailed, match="has ended with the lease"):
            await machine.run("true")
        with pytest.raises(CommandFailed, match="has ended with the lease"):
            await machine.run_all(commands.run("true"), check=False)
    assert len(machines.machine("n1").ordered) == 2


async def test_a_long_command_without_input_that_ends_at_once_has_its_result() -> None:
    machines = SimulatedMachines(respond, lambda user: True)
    work = RemoteWork("op_1")
    async with machines.serving(["n1"]):
        wanted = msgspec.structs.replace(target(machines, operation_id="op_1"), work=work)
        async with connect(wanted) as machine:
            for _ in range(20):
                assert (await machine.run("true", timeout_s=900)).exit_status == 0


async def test_packages_of_the_driver_are_installed_changed_and_removed_as_on_a_machine() -> None:
    driver = Driver()
    driver.packages = {
        "kv-server": SimulatedPackage("3.5-1", "kv", ("kv.service",)),
        "kv-tools": SimulatedPackage("3.5-1", "kv"),
    }
    machines = SimulatedMachines(installs.responder(driver), lambda user: True)
    n1 = machines.machine("n1")
    async with machines.serving(["n1"]), connect(target(machines, operation_id="op_1")) as machine:
        receipt = await receipts.open_for(machine, KV, "inst_1", ("server",))
        await installed.install(machine, KV, receipt, ("server",))
        assert n1.packages == {"kv-server": "3.5-1", "kv-tools": "3.5-1"}
        await machine.run_all(units.restart("kv"))
        change = await package_changes.plan(machine, KV, ("server",), installed.DISTRIBUTION, "3.6-1")
        assert (change.before, change.after) == ("3.5-1", "3.6-1")
        await package_changes.install(machine, KV, "inst_1", ("server",), installed.DISTRIBUTION, "3.6-1")
        assert n1.packages == {"kv-server": "3.6-1", "kv-tools": "3.6-1"}
        await machine.put("/var/lib/kv/data", "x")
        removals: list[removed.Removal] = []

        async def report(removal: removed.Removal) -> None:
            removals.append(removal)

        async def show(text: str) -> None:
            return None

        await uninstall.remove_role(machine, KV, "inst_1", "server", show, report=report)
    assert "packages (2): kv-server, kv-tools" in removals[0].removed
    assert (n1.files, n1.units, n1.packages) == ({}, {}, {})


def test_machines_of_a_check_share_what_the_driver_keeps() -> None:
    machines = SimulatedMachines(respond, lambda user: True)
    machines.machine("n1").network["members"] = 3
    assert machines.machine("n2").network == {"members": 3}
    assert SimulatedMachines(respond, lambda user: True).machine("n1").network == {}


def test_two_runs_are_compared_without_ids_and_the_address_of_the_ssh_server() -> None:
    first, second = (SimulatedMachines(respond, lambda user: True).machine("n1") for _ in range(2))
    first.files = {"/jobs/op_0007.py": b"1", "/etc/kv.conf": b"address=n1 instance=inst_0001"}
    second.files = {"/jobs/op_0012.py": b"1", "/etc/kv.conf": b"address=127.0.0.1 instance=inst_0002"}
    assert Driver().state(first) == Driver().state(second)
    second.files["/jobs/op_0012.py"] = b"2"
    assert Driver().state(first) != Driver().state(second)


async def test_a_program_that_keeps_running_prints_what_the_driver_shows_and_ends_at_none() -> None:
    shown = iter(["1 job", "2 jobs", None])
    machines = SimulatedMachines(respond, lambda user: True, lambda machine, argv: next(shown))
    async with machines.serving(["n1"]), connect(target(machines, instance_id="inst_1")) as machine:
        lines = machine.lines("print(0)", "cluster")
        assert [await anext(lines), await anext(lines)] == ["1 job", "2 jobs"]
        with pytest.raises(CommandFailed, match="status 0"):
            await anext(lines)
    assert machines.machine("n1").ordered == []


async def test_a_simulated_unit_restarts_once_for_each_cause_that_succeeded() -> None:
    machine = SimulatedMachine("n1", respond, files={"/etc/systemd/system/kv.service": b""})
    once = units.restart_once("kv", "op_1").argv
    machine.fails_at = 1
    assert (await machine.execute(once, "op_1.1", b"")).exit_status != 0
    for expected in (1, 1):
        assert (await machine.execute(once, "op_1.1", b"")).exit_status == 0
        assert machine.starts == {"kv.service": expected}
    await machine.execute(units.restart_once("kv", "op_2").argv, "op_2.1", b"")
    assert machine.starts == {"kv.service": 2}
    assert (await machine.execute(once, "observer", b"")).exit_status != 0
