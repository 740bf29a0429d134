"""The local cloud, which runs completely on this machine: `gpuaas up` and `gpuaas down`."""
