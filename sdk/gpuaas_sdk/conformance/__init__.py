"""The conformance kit: prove that an app's controller is sound. Install the SDK with the extra `testing`.

It starts the controller as a real process against a fake platform and simulated machines, and disturbs it: it is
killed, paused, cancelled, and cut off from machines. An app team writes a `Driver` and calls `main`."""

from gpuaas_sdk.conformance.checks import ALL
from gpuaas_sdk.conformance.command import main
from gpuaas_sdk.conformance.controllers import Subject
from gpuaas_sdk.conformance.driver import Driver, SimulatedPackage
from gpuaas_sdk.conformance.machines import SimulatedMachine
from gpuaas_sdk.conformance.run import run
from gpuaas_sdk.conformance.trial import Reference, Trial
from gpuaas_sdk.conformance.verdicts import GAPS, ScoreCard, Verdict

__all__ = [
    "ALL",
    "GAPS",
    "Driver",
    "Reference",
    "ScoreCard",
    "SimulatedMachine",
    "SimulatedPackage",
    "Subject",
    "Trial",
    "Verdict",
    "main",
    "run",
]
