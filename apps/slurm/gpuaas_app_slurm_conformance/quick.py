"""The controller of the app as a process, with shorter waits: python -m gpuaas_app_slurm_conformance.quick run …

The conformance kit and the crash matrix repeat every operation many times, on machines that answer at once. Everything
but these times is the program `gpuaas-slurm`."""

import sys

from gpuaas_app_slurm import controller
from gpuaas_app_slurm.settings import Settings

SETTINGS = Settings(
    reach_s=10.0,
    reach_leaving_s=10.0,
    drain_poll_s=0.2,
    old_key_s=1.0,
)

if __name__ == "__main__":
    sys.exit(controller.build(SETTINGS).main())
