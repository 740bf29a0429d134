"""Pure: what a topology of an app needs, from its manifest: roles, numbers of machines, and a picture of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuaas_contract.catalog import Manifest, RoleSpec

BOXES_MAX = 4
BOX_W, BOX_H, GAP, LABEL_W = 34, 22, 6, 88
ROW_H = BOX_H + GAP


@dataclass(frozen=True)
class Part:
    """One role of a topology."""

    role: str
    field: str
    """Title of the field with the machines of the role."""
    least: int
    most: int
    is_list: bool
    y: int
    name: str
    """Name of that field. Roles with the same field share a machine."""

    @property
    def boxes(self) -> list[tuple[int, bool]]:
        """Where each machine is drawn, and whether it is needed; others can be added."""
        shown = min(max(self.least + (1 if self.most > self.least else 0), 1), BOXES_MAX)
        return [(LABEL_W + place * (BOX_W + GAP), place < self.least) for place in range(shown)]

    @property
    def count(self) -> str:
        if self.least == self.most:
            return f"{self.least} machine{'' if self.least == 1 else 's'}"
        return f"{self.least} to {self.most} machines"


@dataclass(frozen=True)
class Topology:
    name: str
    parts: list[Part]

    @property
    def width(self) -> int:
        return LABEL_W + max((len(part.boxes) for part in self.parts), default=0) * (BOX_W + GAP)

    @property
    def height(self) -> int:
        return ROW_H * len(self.parts)

    @property
    def means(self) -> str:
        """What one or several machines mean, as a sentence."""
        shared = [part for part in self.parts if part.name == self.parts[0].name and not part.is_list]
        if len(shared) == len(self.parts):
            return "Everything runs on one machine. If the machine fails, the instance fails."
        if len(shared) > 1:
            others = ", ".join(part.role for part in self.parts if part not in shared)
            roles = " and ".join(part.role for part in shared)
            return f"One machine is {roles}. If it fails, the instance fails. On further machines: {others}."
        roles = " and ".join(part.role for part in self.parts)
        return f"Several machines work as one instance: {roles}."


def topologies(manifest: Manifest) -> list[Topology]:
    """Return the topologies in the order of the manifest."""
    roles = {role.component_key: role for role in manifest.roles}
    return [
        Topology(name, [_part(manifest, roles, key, field, place) for place, (key, field) in enumerate(fields.items())])
        for name, fields in manifest.topologies.items()
    ]


def _part(manifest: Manifest, roles: Mapping[str, RoleSpec], key: str, field: str, place: int) -> Part:
    schema = _schema(manifest, field)
    is_list = schema.get("type") == "array"
    role = roles.get(key)
    least = role.min if role else 0
    if not is_list:
        least = 1 if field in _required(manifest) else least
    else:
        least = max(least, int(schema.get("minItems", 0)) if field in _required(manifest) else 0)
    most = max(min(role.max if role else 1, int(schema.get("maxItems", 10**6))), least) if is_list else 1
    title = str(schema.get("title") or field.replace("_", " ").capitalize())
    return Part(key, title, least, most, is_list, place * ROW_H, field)


def _schema(manifest: Manifest, field: str) -> Mapping[str, Any]:
    schema = manifest.deploy_form.get("properties", {}).get(field)
    return schema if isinstance(schema, Mapping) else {}


def _required(manifest: Manifest) -> Sequence[str]:
    required = manifest.deploy_form.get("required", [])
    return required if isinstance(required, list) else []
