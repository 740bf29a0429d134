"""The systemd unit: it takes from the agent what no task needs, and hides no file from the release of an allocation."""

import importlib.resources
from collections import defaultdict

NEVER_NEEDED = {
    "NoNewPrivileges",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "ProtectControlGroups",
    "ProtectKernelLogs",
    "ProtectKernelTunables",
}
HIDES_FILES = {
    "PrivateTmp",
    "PrivateDevices",
    "ProtectHome",
    "ProtectSystem",
    "ProtectKernelModules",
    "ProtectProc",
    "InaccessiblePaths",
    "TemporaryFileSystem",
}
TASKS_NEED = {"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"}
READS_PROCESSES, WRITES_AUDIT = "SYS_PTRACE", "AUDIT_WRITE"


def directives() -> dict[str, list[str]]:
    """Return the words of each directive. A directive that is repeated adds words."""
    words: dict[str, list[str]] = defaultdict(list)
    for line in importlib.resources.files("gpuaas_agent").joinpath("gpuaas-agent.service").read_text().splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            words[name] += value.split()
    return words


def test_the_agent_has_only_the_capabilities_that_its_tasks_use() -> None:
    kept = {word.removeprefix("CAP_") for word in directives()["CapabilityBoundingSet"]}
    assert kept == TASKS_NEED | {READS_PROCESSES, WRITES_AUDIT}


def test_everything_that_no_task_needs_is_off() -> None:
    unit = directives()
    assert {name for name in NEVER_NEEDED if unit[name] != ["yes"]} == set()
    assert unit["SystemCallFilter"] == ["@system-service"]
    assert unit["SystemCallArchitectures"] == ["native"]
    assert set(unit["RestrictAddressFamilies"]) == {"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}


def test_no_file_that_a_user_can_write_is_hidden_from_the_agent() -> None:
    """Otherwise a release would report a machine as clean and leave files on it."""
    assert HIDES_FILES & set(directives()) == set()
