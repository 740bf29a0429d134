"""Named questions about Ray on one machine, each with the reason that people read. Pure."""

import msgspec
from gpuaas_sdk.checks import Check


class View(msgspec.Struct, frozen=True):
    """What the program on the machine sees. `runs`: the machine is a node of the cluster."""

    health: str = "not installed"
    runs: bool = False
    closed: bool = False
    work: tuple[str, ...] = ()


def serves(view: View, machine: str) -> Check:
    """Does Ray on this machine take part in the cluster?"""
    return Check(view.runs and view.health == "success" and not view.closed, f"Ray on {machine}: {view.health}")


def has_left(view: View, machine: str) -> Check:
    """Has a drained node left the cluster? Ray ends the node itself, when its last task and actor have ended."""
    runs = ", ".join(view.work[:5]) or "what Ray still has there"
    return Check(not view.runs and not view.work, f"{len(view.work)} tasks and actors run on {machine}: {runs}")
