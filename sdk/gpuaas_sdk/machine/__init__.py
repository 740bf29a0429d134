"""Work on a machine as root: `Machine` runs commands and reads and writes files over a transport.

App handlers get a machine from `Operation.machine`. `connect` opens one over SSH without an operation."""

from gpuaas_sdk.machine.commands import File
from gpuaas_sdk.machine.errors import CommandFailed, CommandTimedOut, MachineAway, MachineUnreachable
from gpuaas_sdk.machine.machine import Machine, Ran
from gpuaas_sdk.machine.ssh import MachineTarget, RemoteWork, connect
from gpuaas_sdk.machine.transport import Command, Completed, Transport

__all__ = [
    "Command",
    "CommandFailed",
    "CommandTimedOut",
    "Completed",
    "File",
    "Machine",
    "MachineAway",
    "MachineTarget",
    "MachineUnreachable",
    "Ran",
    "RemoteWork",
    "Transport",
    "connect",
]
