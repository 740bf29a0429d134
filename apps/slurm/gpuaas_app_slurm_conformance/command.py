"""The command `gpuaas-slurm-conformance`, which `gpuaas app conformance slurm` runs.

The controller has shorter waits than `gpuaas-slurm`, because the kit repeats every operation many times."""

from gpuaas_sdk import conformance

from gpuaas_app_slurm_conformance.driver import QUICK_COMMAND, SlurmDriver


def main() -> int:
    return conformance.main(SlurmDriver(), QUICK_COMMAND)
