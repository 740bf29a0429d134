"""Real Debian machines on one Linux host, started by the command `gpuaas-lab`."""
