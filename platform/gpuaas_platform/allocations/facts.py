"""What happened to an allocation. Domains that depend on allocations react in the same transaction; see
`kit.reactions`."""

from dataclasses import dataclass

from gpuaas_contract.capacity import Allocation

from gpuaas_platform.call import Origin


@dataclass(frozen=True)
class ReleaseStarted:
    """The release of an allocation started: nothing new may be put on its machine."""

    origin: Origin
    allocation: Allocation


@dataclass(frozen=True)
class MachinePrepared:
    """A reinstalled machine is prepared for its allocation again. It does not refuse revoked certificates yet."""

    origin: Origin
    allocation: Allocation
