"""The conformance kit on a real platform: an app is deployed, operated and interrupted on machines of a project, over
the public API. Nothing is simulated, so only those checks run that need no fault in the platform and no look at a
machine.

`command` calls `run` if the command line has `--credentials`."""

from gpuaas_sdk.conformance.real.run import run
from gpuaas_sdk.conformance.real.site import CannotUse, Site

__all__ = ["CannotUse", "Site", "run"]
