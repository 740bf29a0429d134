"""The scripts of `gpuaas_sdk.installs` on a simulated machine, so that no app has to answer them. Users, groups and
virtual environments are files of the machine, so that a check sees what was left."""

from pathlib import PurePosixPath

from gpuaas_sdk.installs import apt, receipts, removals, uninstall, wheels
from gpuaas_sdk.machine import Ran, shell

ACCOUNTS = "/etc/accounts/"
"""Where a simulated machine has a file for each user that was made."""
_OK = Ran(0, "", "")


def respond(files: dict[str, bytes], units: dict[str, str], script: str, words: tuple[str, ...]) -> Ran | None:
    """Return the result of a script of `installs` with these words; None if it is another script.

    respond(machine.files, machine.units, script, ("unit-1", "unit-2"))"""
    if _is(script, receipts.INSPECT):
        return Ran(0, "".join(_inspected(files, units, kind, name) for kind, name in _pairs(words)), "")
    if _is(script, removals.STILL_THERE):
        present = [(kind, name) for kind, name in _pairs(words) if _is_there(files, units, kind, name)]
        return Ran(0, "".join(f"{kind} {name}\n" for kind, name in present), "")
    if _is(script, uninstall.STOP):
        for unit in words:
            units.pop(f"{unit}.service", None)
        return _OK
    if _is(script, uninstall.REMOVE_PATHS, uninstall.EMPTY_FOLDERS, uninstall.DELETE_RECEIPT):
        _remove(files, words)
        return _OK
    if _is(script, uninstall.REMOVE_USERS, uninstall.REMOVE_GROUPS):
        _remove(files, tuple(ACCOUNTS + name for name in words))
        return _OK
    if _is(script, wheels.INSTALL):
        path, _, folder = words
        files[f"{folder}/.digest"] = PurePosixPath(path).name.encode()
        return _OK
    return _OK if _is(script, uninstall.END_PROCESSES, uninstall.RESTORE_UNIT, apt.REPAIR) else None


def _is(script: str, *texts: str) -> bool:
    """Return whether the script that arrived is one of these. The SDK groups the commands of a script."""
    return script in {shell.grouped(text) for text in texts}


def _pairs(words: tuple[str, ...]) -> list[tuple[str, str]]:
    return list(zip(words[::2], words[1::2], strict=True))


def _inspected(files: dict[str, bytes], units: dict[str, str], kind: str, name: str) -> str:
    if kind == "unit":
        return f"unit {name} absent {units.get(name, 'inactive')}\n"
    there = _is_there(files, units, kind, name)
    if kind == "path":
        return f"{'present' if there else 'absent'} {name}\n"
    return "" if there or kind == "content" else f"no-{kind} {name}\n"


def _is_there(files: dict[str, bytes], units: dict[str, str], kind: str, name: str) -> bool:
    if kind == "unit":
        return f"{name}.service" in units
    path = ACCOUNTS + name if kind in ("user", "group") else name
    return any(file == path or file.startswith(f"{path}/") for file in files)


def _remove(files: dict[str, bytes], paths: tuple[str, ...]) -> None:
    for path in paths:
        for file in [file for file in files if file == path or file.startswith(path.rstrip("/") + "/")]:
            del files[file]
