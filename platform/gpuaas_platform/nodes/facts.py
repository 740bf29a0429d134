"""Facts about nodes that domains above react to in the same transaction. See `kit.reactions`."""

from dataclasses import dataclass

from gpuaas_contract.capacity import Node
from gpuaas_contract.node import TaskResult

from gpuaas_platform.call import Origin, Site


@dataclass(frozen=True)
class TaskEnded:
    """A node task ended, or expired without a result. Its kind is the type of the task."""

    site: Site
    origin: Origin
    task_id: str
    node_id: str
    subject_id: str
    """What the task is about: an allocation, a placement, or nothing."""
    result: TaskResult


@dataclass(frozen=True)
class NodeReinstalled:
    """A known node enrolled again. Its disk is empty."""

    origin: Origin
    node: Node


@dataclass(frozen=True)
class NodeMoved:
    """The address of a node changed."""

    origin: Origin
    node: Node
