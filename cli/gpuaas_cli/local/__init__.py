"""A whole cloud on this host: `gpuaas up` and `gpuaas down`."""
