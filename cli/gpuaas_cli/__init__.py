"""The command `gpuaas`, for users and scripts. It calls a server through the SDK, and starts the local cloud."""

VERSION = "0.1.0"
