"""Descriptions of the API from the contract, for `gpuaas explain` and `gpuaas schema`."""
