"""The scripts of `gpuaas_sdk.installs` on simulated machines, so that no driver has to answer them. A driver that names
its packages gets the package tools of Debian too. Users and virtual environments are files, so that a check sees what
an app leaves."""

import base64
import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath

from gpuaas_sdk.conformance import orders
from gpuaas_sdk.conformance.driver import Driver
from gpuaas_sdk.conformance.machines import OK, PACKAGED_UNITS, Respond, SimulatedMachine
from gpuaas_sdk.installs import apt, packages, receipts, removals, uninstall, wheels
from gpuaas_sdk.machine import Ran, shell

ACCOUNTS = "/etc/accounts/"
"""Where a simulated machine has a file for each user that was made."""

Words = Sequence[str]
Answer = Callable[[Driver, SimulatedMachine, Words], Ran]


def responder(driver: Driver) -> Respond:
    """Return what answers commands: the driver first, then the simulated scripts and package tools."""

    def respond(machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        answer = driver.respond(machine, argv, data)
        if answer is not None:
            return answer
        if argv[:4] == ("bash", "-seuo", "pipefail", "--"):
            script = _SCRIPTS.get(data.decode(errors="replace"))
            return script(driver, machine, argv[4:]) if script else None
        plain = orders.without_environment(argv)
        program = _PROGRAMS.get(plain[0]) if driver.packages else None
        return program(driver, machine, plain[1:]) if program else None

    return respond


def _apt_get(driver: Driver, machine: SimulatedMachine, words: Words) -> Ran:
    names = _named(driver, words)
    if "install" in words and "-s" not in words:
        for name, version in names.items():
            machine.packages[name] = version
            machine.files |= {f"{PACKAGED_UNITS}{unit}": b"" for unit in driver.packages[name].units}
    elif "install" in words:
        old = {name: f"[{machine.packages[name]}] " for name in names if name in machine.packages}
        changed = {name: version for name, version in names.items() if machine.packages.get(name) != version}
        return _lines(f"Inst {name} {old.get(name, '')}({version} Debian)" for name, version in changed.items())
    elif "purge" in words and "-s" in words:
        return _lines(f"Purg {name} [{machine.packages[name]}]" for name in names if name in machine.packages)
    elif "purge" in words:
        for name in names:
            machine.packages.pop(name, None)
            for unit in driver.packages[name].units:
                machine.files.pop(f"{PACKAGED_UNITS}{unit}", None)
    return OK


def _named(driver: Driver, words: Words) -> dict[str, str]:
    """Return the packages that a command names, each with the version that it names or that the source offers."""
    pairs = [word.partition("=") for word in words if word.partition("=")[0] in driver.packages]
    return {name: version or driver.packages[name].version for name, _, version in pairs}


def _dpkg_query(driver: Driver, machine: SimulatedMachine, words: Words) -> Ran:
    shown, patterns = words[2], words[3:]
    names = [name for name in machine.packages if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]

    def line(name: str) -> str:
        fields = {"Package": name, "Version": machine.packages[name], "source:Package": driver.packages[name].source}
        return re.sub(r"\$\{(.+?)\}", lambda match: fields.get(match[1], "installed"), shown)

    text = "".join(map(line, names))
    return Ran(0 if names else 1, text, "")


def _missing(driver: Driver, machine: SimulatedMachine, words: Words) -> Ran:
    return _lines(name for name in words if name not in machine.packages)


def _inspect(driver: Driver, machine: SimulatedMachine, words: Words) -> Ran:
    lines = []
    for kind, name in zip(words[::2], words[1::2], strict=True):
        if kind == "path":
            lines.append(f"{'present' if machine.has(name) else 'absent'} {name}")
        elif kind == "content" and name in machine.files:
            lines.append(f"content {name} {base64.b64encode(machine.files[name]).decode()}")
        elif kind in ("user", "group") and not machine.has(ACCOUNTS + name):
            lines.append(f"no-{kind} {name}")
        elif kind == "unit":
            lines.append(f"unit {name} absent {machine.units.get(name, 'inactive')}")
    return _lines(lines)


def _still_there(driver: Driver, machine: SimulatedMachine, words: Words) -> Ran:
    present: dict[str, Callable[[str], bool]] = {
        "path": machine.has,
        "content": machine.has,
        "user": lambda name: machine.has(ACCOUNTS + name),
        "package": lambda name: name in machine.packages,
        "unit": lambda name: machine.units.get(f"{name}.service") == "active",
    }
    asked = zip(words[::2], words[1::2], strict=True)
    return _lines(f"{kind} {name}" for kind, name in asked if kind in present and present[kind](name))


def _stop(driver: Driver, machine: SimulatedMachine, words: Words) -> Ran:
    for unit in words:
        machine.units.pop(f"{unit}.service", None)
    return OK


def _remove(driver: Driver, machine: SimulatedMachine, words: Words) -> Ran:
    machine.remove(words)
    return OK


def _remove_users(driver: Driver, machine: SimulatedMachine, words: Words) -> Ran:
    machine.remove([ACCOUNTS + name for name in words])
    return OK


def _make_environment(driver: Driver, machine: SimulatedMachine, words: Words) -> Ran:
    path, _, folder = words
    machine.files[f"{folder}/.digest"] = PurePosixPath(path).name.encode()
    return OK


def _nothing(driver: Driver, machine: SimulatedMachine, words: Words) -> Ran:
    return OK


def _lines(lines: Iterable[str]) -> Ran:
    return Ran(0, "".join(f"{line}\n" for line in lines), "")


_SCRIPTS: dict[str, Answer] = {
    shell.grouped(text): answer
    for text, answer in (
        (receipts.INSPECT, _inspect),
        (packages.MISSING, _missing),
        (packages.UPDATE, _nothing),
        (packages.INSTALL, _apt_get),
        (apt.REPAIR, _nothing),
        (uninstall.STOP, _stop),
        (uninstall.REMOVE_PATHS, _remove),
        (uninstall.EMPTY_FOLDERS, _remove),
        (uninstall.END_PROCESSES, _nothing),
        (uninstall.REMOVE_USERS, _remove_users),
        (uninstall.REMOVE_GROUPS, _nothing),
        (uninstall.RESTORE_UNIT, _nothing),
        (uninstall.DELETE_RECEIPT, _remove),
        (removals.STILL_THERE, _still_there),
        (wheels.INSTALL, _make_environment),
    )
}
_PROGRAMS: dict[str, Answer] = {"apt-get": _apt_get, "dpkg-query": _dpkg_query, "apt-mark": _nothing}
