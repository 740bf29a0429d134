"""Pure: decide what the local cloud needs next, from its current state. `cloud` reads the state and acts."""

import dataclasses
import datetime
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpuaas_contract.capacity import Allocation, Node
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.lifecycles import LIVE_ALLOCATION

GATEWAY_PORT = 7443
DATA = "data"
"""Folder of the server's data, in the folder of the cloud."""
MACHINES = "machines"
"""File that exists if machines were created; then `down` needs root to stop them, and later to delete their disks."""
PREFERRED_TOPOLOGY = "split"
TOOLCHAIN_NOTE = (
    "Machines have no route to the internet. With --toolchain, new machines have gcc, git, Open MPI, pip and venv."
)


@dataclass(frozen=True)
class CloudRequest:
    """The options of `gpuaas up`, and the folders of the local cloud."""

    home: Path
    nodes: int = 3
    app: str = "slurm"
    lab: str = "local"
    port: int = 7070
    deploy: bool = True
    control_plane_only: bool = False
    toolchain: bool = False
    asked_s: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def console(self) -> str:
        return f"http://127.0.0.1:{self.port + 1}"

    @property
    def folder(self) -> Path:
        return self.home / self.lab

    @property
    def data(self) -> Path:
        return self.folder / DATA

    @property
    def release_key(self) -> Path:
        """The private key that signs agent releases of this cloud. On a real platform it is not on this computer."""
        return self.folder / "agent-release.key"

    @property
    def release_public_key(self) -> Path:
        return self.folder / f"{self.release_key.name}.pub"

    @property
    def console_links(self) -> Path:
        """Folder of the one-time sign-in links."""
        return self.folder / "console-links"

    def of_app(self, name: str) -> Path:
        return self.folder / self.app / name


def image_options(request: CloudRequest) -> list[str]:
    return ["--toolchain"] if request.toolchain else []


def server_command(program: str, request: CloudRequest, gateway: str) -> list[str]:
    """Return the server's command line. Without a gateway there are no machines, and it listens on loopback only."""
    # One person runs a local cloud, so no second one approves releases of the agent.
    releases = ["--agent-release-key", str(request.release_public_key), "--agent-release-approvals", "0"]
    result = [program, "server", "--data", str(request.data), *releases, "--listen", f"127.0.0.1:{request.port}"]
    return [*result, "--listen", f"{gateway}:{GATEWAY_PORT}"] if gateway else result


def console_command(program: str, request: CloudRequest) -> list[str]:
    where = ["--listen", f"127.0.0.1:{request.port + 1}", "--links", str(request.console_links)]
    return [program, "run", "--server", request.server, *where]


def must_make_admin(*, has_token: bool, data_is_empty: bool) -> bool:
    """Return whether to create the admin before the server starts; else the server creates it and logs the password."""
    return data_is_empty or not has_token


def node_names(count: int) -> list[str]:
    return [f"gpu-{number}" for number in range(1, count + 1)]


def to_enrol(wanted: Sequence[str], nodes: Sequence[Node], machines: Collection[str]) -> list[str]:
    """Return the nodes that need a token: new ones, and those whose machine was deleted, because the disk is new."""
    known = {node.name for node in nodes}
    return [name for name in wanted if name not in known or name not in machines]


def not_ready(wanted: Sequence[str], nodes: Sequence[Node], seen_since: datetime.datetime) -> list[str]:
    """Return the nodes without a heartbeat since the server started; an older status `ready` may be out of date."""
    ready = {node.name for node in nodes if node.status == "ready" and node.last_seen_at >= seen_since}
    return [name for name in wanted if name not in ready]


def to_allocate(wanted: Sequence[str], allocations: Sequence[Allocation]) -> list[str]:
    held = {item.node_name for item in allocations if item.status in LIVE_ALLOCATION}
    return [name for name in wanted if name not in held]


def allocations_of(wanted: Sequence[str], allocations: Sequence[Allocation]) -> list[Allocation]:
    """Return the live allocation of each node, in the order of the nodes."""
    by_node = {item.node_name: item for item in allocations if item.status in LIVE_ALLOCATION}
    return [by_node[name] for name in wanted if name in by_node]


def deployment(manifest: Manifest, allocation_ids: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return topology and inputs to deploy an app on all machines: a field for one allocation gets the first machine,
    the first field for several gets all. Other required fields get the default or the first example of the form."""
    topology = PREFERRED_TOPOLOGY if PREFERRED_TOPOLOGY in manifest.topologies else next(iter(manifest.topologies))
    fields: Mapping[str, Any] = manifest.deploy_form.get("properties", {})
    given: dict[str, Any] = {}
    placed = list(dict.fromkeys(manifest.topologies[topology].values()))
    several = [name for name in placed if fields[name].get("type") == "array"]
    given |= {name: allocation_ids[0] for name in placed if name not in several}
    given |= {name: list(allocation_ids) for name in several[:1]}
    for name in manifest.deploy_form.get("required", []):
        field = fields.get(name, {})
        offered = [field["default"]] if "default" in field else field.get("examples", [])
        if name not in given and offered:
            given[name] = offered[0]
    return topology, given


InstanceStep = Literal["deploy", "follow", "start", "use", "give_up"]
_STEPS: dict[str, InstanceStep] = {"running": "use", "degraded": "use", "stopped": "start", "failed": "give_up"}
"""Next step by instance status. In every other status an operation is running."""


def instance_step(instances: Sequence[Instance], name: str) -> tuple[InstanceStep, Instance | None]:
    """Return the next step and the live instance with this name; there is at most one."""
    live = [item for item in instances if item.name == name and item.status != "deleted"]
    if not live:
        return "deploy", None
    return _STEPS.get(live[0].status, "follow"), live[0]


def next_commands(
    request: CloudRequest, manifest: Manifest, members: Sequence[Member], allocations: Sequence[Allocation]
) -> list[str]:
    """Return commands that the user can try next; each works without changes."""
    name = request.app
    growing, draining = (
        [role.component_key for role in manifest.roles if verb in role.operations] for verb in ("add", "drain")
    )
    drainable = [item for item in members if item.component_key in draining and item.status == "ready"]
    free = [item for item in allocations if item.status == "active" and not item.used_by_instance_ids]
    result = [f"gpuaas ssh {name}", f"gpuaas access {name}", f"gpuaas get members --instance {name}"]
    if drainable:
        result.append(f"gpuaas member drain {name} {drainable[-1].node_name} --reason 'trying it'")
    if free and growing:
        result.append(f"gpuaas member add {name} --role {growing[0]} --allocation {free[0].node_name}")
    return [*result, command("down", request.lab)]


def command(words: str, lab_name: str) -> str:
    """Return a command such as `gpuaas down`, with the lab's name if it is not the default."""
    return f"gpuaas {words}" + ("" if lab_name == "local" else f" --lab {lab_name}")
