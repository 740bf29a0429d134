"""Both cgroup layouts of a host are recognised from its mounts."""

from pathlib import Path

import pytest
from gpuaas_lab import cgroup, errors

PURE = "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "31 20 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "32 20 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
    "33 20 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def test_a_pure_host_has_one_tree() -> None:
    assert cgroup.read_layout(PURE).trees() == [Path("/sys/fs/cgroup")]


def test_a_hybrid_host_has_the_named_tree_too() -> None:
    assert cgroup.read_layout(HYBRID).trees() == [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/systemd")]


def test_a_host_without_version_two_is_refused() -> None:
    with pytest.raises(errors.HostNotUsable):
        cgroup.read_layout("33 20 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
