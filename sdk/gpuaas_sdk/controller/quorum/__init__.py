"""Handlers for apps whose members agree by majority: a store, a broker, a coordinator. The app describes its members as
`Peers`; `register` adds the handler of each operation, with a replacement that joins before the old member leaves."""

from gpuaas_sdk.controller.quorum.handlers import register
from gpuaas_sdk.controller.quorum.moves import join, others, serving_member, step
from gpuaas_sdk.controller.quorum.peers import Peers, Settings

__all__ = ["Peers", "Settings", "join", "others", "register", "serving_member", "step"]
