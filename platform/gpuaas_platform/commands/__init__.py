"""Commands of `gpuaas-platform` other than the server itself."""
