"""The command `gpuaas`: for people and scripts. Talks to a server through the SDK, and starts the local cloud."""

VERSION = "0.1.0"
