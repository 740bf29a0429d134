"""What happened to a node. Domains that depend on nodes react to it in the same transaction; see `kit.reactions`."""

from dataclasses import dataclass

from gpuaas_contract.capacity import Node
from gpuaas_contract.node import TaskResult

from gpuaas_platform.call import Origin, Site


@dataclass(frozen=True)
class TaskEnded:
    """A node task ended, or expired without a result. The kind of this fact is the type of the task."""

    site: Site
    origin: Origin
    task_id: str
    node_id: str
    subject_id: str
    """Id of the allocation or placement that the task is about; empty if the task is about the node."""
    result: TaskResult


@dataclass(frozen=True)
class NodeReinstalled:
    """A known node enrolled again. The platform assumes that its disk is empty."""

    origin: Origin
    node: Node


@dataclass(frozen=True)
class NodeMoved:
    """The address of a node changed."""

    origin: Origin
    node: Node
