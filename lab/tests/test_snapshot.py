"""A snapshot for one lab leaves out the lines of other labs, and nothing else."""

import pytest
from gpuaas_lab import plan, snapshot


@pytest.mark.parametrize(
    "line",
    [
        "mount /var/lib/gpuaas/lab/labs/other/machines/gpu-1/root",
        "mount /run/netns/gpuaas-other-gpu-1",
        "netns gpuaas-other-gpu-1",
        f"link {plan.bridge_name('other')}",
        f"link {plan.veth_name('other', 11)}",
        "cgroup /sys/fs/cgroup/unified/gpuaas-other",
        "cgroup /sys/fs/cgroup/unified/gpuaas-other/gpu-1/payload/gpuaas-agent.service",
        "process 17 /gpuaas-other/gpu-1/supervisor / systemd-nspawn --quiet",
        "process 18 /shell /var/lib/gpuaas/lab/labs/other/machines/gpu-1/root tar --extract",
        "run file /run/systemd/nspawn/propagate/gpuaas-other-gpu-1",
    ],
)
def test_a_line_of_another_lab_is_recognised_and_one_of_the_same_lab_is_kept(line: str) -> None:
    assert snapshot._is_of_another_lab(line, "mine")
    own = line.replace("-other", "-mine").replace("/other/", "/mine/")
    own = own.replace(plan.bridge_name("other"), plan.bridge_name("mine"))
    own = own.replace(plan.veth_prefix("other"), plan.veth_prefix("mine"))
    assert not snapshot._is_of_another_lab(own, "mine")


@pytest.mark.parametrize("line", ["mount /run/netns", "netns vpn", "link eth0", "cgroup /sys/fs/cgroup/system.slice"])
def test_a_line_of_no_lab_is_kept(line: str) -> None:
    assert not snapshot._is_of_another_lab(line, "mine")
