"""The contract in words, for `gpuaas explain` and `gpuaas schema`."""
