"""From a path to the routes under it: a tree with one step per part of the path, so a match does not grow with the
table. `http` builds it from the endpoint table at start."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from gpuaas_contract import errors

from gpuaas_platform.edge import decode as decoding

Target = TypeVar("Target")
_MATCHES_KEPT = 4096


@dataclass(slots=True)
class _Node(Generic[Target]):
    names: dict[bytes, "_Node[Target]"] = field(default_factory=dict)
    parameter: "_Node[Target] | None" = None
    targets: dict[str, tuple[Target, tuple[str, ...]]] = field(default_factory=dict)
    """Method -> target and the names of its parameters."""


class Match(NamedTuple, Generic[Target]):
    target: Target
    params: Mapping[str, str]


class Tree(Generic[Target]):
    def __init__(self) -> None:
        self._root: _Node[Target] = _Node()
        self._nowhere: _Node[Target] = _Node()
        self._written_out: dict[bytes, _Node[Target]] = {}
        """Paths without parameters need no walk."""
        self.match = functools.lru_cache(_MATCHES_KEPT)(self._match)
        """Callers come back to the same paths. A path that leads nowhere is not kept."""

    def add(self, method: str, path: str, target: Target) -> None:
        node, names = self._root, []
        for part in path.split("/")[1:]:
            if part.startswith("{"):
                names.append(part.strip("{}"))
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.names.setdefault(part.encode(), _Node())
        node.targets[method] = (target, tuple(names))
        if not names:
            self._written_out[path.encode()] = node

    def _match(self, method: str, path: bytes) -> Match[Target]:
        """A path that is written out goes before one with a parameter; HEAD is answered as GET."""
        values: list[bytes] = []
        node = self._written_out.get(path) or _find(self._root, path.split(b"/"), 1, values) or self._nowhere
        found = node.targets.get("GET" if method == "HEAD" else method)
        if found is not None:
            target, names = found
            return Match(target, {name: decoding.segment(name, raw) for name, raw in zip(names, values, strict=True)})
        if not node.targets:
            raise errors.NotFound
        allowed = sorted({*node.targets, *(["HEAD"] if "GET" in node.targets else [])})
        raise errors.MethodNotAllowed(f"This path does not take {method[:20]}.", details={"allow": allowed})


def _find(node: _Node[Target], parts: list[bytes], position: int, values: list[bytes]) -> _Node[Target] | None:
    """Depth first; `values` gets the parameters of the way that led there."""
    if position == len(parts):
        return node if node.targets else None
    part = parts[position]
    named = node.names.get(part)
    if named is not None:
        found = _find(named, parts, position + 1, values)
        if found is not None:
            return found
    if node.parameter is None or not part:
        return None
    values.append(part)
    found = _find(node.parameter, parts, position + 1, values)
    if found is None:
        values.pop()
    return found
