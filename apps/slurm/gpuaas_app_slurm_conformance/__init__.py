"""The conformance kit for Slurm: gpuaas app conformance slurm

The kit has simulated machines, and this package has the Slurm on them, in memory. The app's own tests use the same
Slurm. A controller in operation loads nothing of it."""
