"""Find out where the machine of a member gets its packages from. Used by every handler that installs them."""

from gpuaas_contract.instances import Member

from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.installs import Footprint, bundle, packages
from gpuaas_sdk.machine import Machine


async def of(
    op: Operation, member: Member, machine: Machine, footprint: Footprint, chosen: packages.Choice = "auto"
) -> packages.Source:
    """Return the source of the machine's packages. A bundle is on the machine and verified afterwards.

    `chosen` is what people chose: packages are `present`, from the `distribution` or from the `bundle` of the app
    version; `auto` takes the bundle if the version has one.

    source = await package_sources.of(op, member, machine, KV, op.instance.inputs["packages"])"""
    if chosen == "present":
        return packages.PRESENT
    if chosen == "distribution" or not await has_bundle(op, footprint, chosen):
        return packages.DISTRIBUTION
    unpacked = await bundle.unpack(machine, footprint, await op.place(footprint.bundle_artifact, member))
    return packages.Source("bundle", unpacked.apt_options, unpacked.index.versions)


async def has_bundle(op: Operation, footprint: Footprint, chosen: packages.Choice = "auto") -> bool:
    """Return whether a bundle is used. If people chose it, a version without one is an error when it is placed.

    await package_sources.has_bundle(op, KV)"""
    return chosen == "bundle" or await op.has_artifact(footprint.bundle_artifact)
