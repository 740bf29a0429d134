"""Facts about allocations that domains above react to in the same transaction. See `kit.reactions`."""

from dataclasses import dataclass

from gpuaas_contract.capacity import Allocation

from gpuaas_platform.call import Origin


@dataclass(frozen=True)
class ReleaseStarted:
    """The machine is being given back: nothing new may be put on it."""

    origin: Origin
    allocation: Allocation


@dataclass(frozen=True)
class MachinePrepared:
    """A machine that was installed again is prepared again. It does not refuse revoked certificates yet."""

    origin: Origin
    allocation: Allocation
