"""Find the route of a path in a tree with one level per part of the path, so that the time of a match does not grow
with the number of endpoints. `http` builds the tree from the endpoint table at start."""

import functools
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from gpuaas_contract import errors
from gpuaas_contract.paths import Path

from gpuaas_platform.edge import decode

Target = TypeVar("Target")
_MATCHES_KEPT = 4096


@dataclass(slots=True)
class _Node(Generic[Target]):
    names: dict[bytes, "_Node[Target]"] = field(default_factory=dict)
    parameter: "_Node[Target] | None" = None
    targets: dict[str, tuple[Target, type[Path]]] = field(default_factory=dict)
    """HTTP method -> the endpoint to call, and the struct of its path parameters."""


class Match(NamedTuple, Generic[Target]):
    target: Target
    path: Path


class Tree(Generic[Target]):
    def __init__(self) -> None:
        self._root: _Node[Target] = _Node()
        self.match = functools.lru_cache(_MATCHES_KEPT)(self._match)
        """Return the route of a path. Results are cached, because callers use the same paths repeatedly; an unknown
        path raises."""

    def add(self, method: str, path: str, target: Target, params: type[Path] = Path) -> None:
        """Add a route. `params` is a struct with one field per placeholder of the path, in the same order."""
        node = self._root
        for part in path.split("/")[1:]:
            if part.startswith("{"):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.names.setdefault(part.encode(), _Node())
        node.targets[method] = (target, params)

    def _match(self, method: str, path: bytes) -> Match[Target]:
        """Return the route of the path. A literal part has priority over a parameter; HEAD uses the route of GET."""
        values: list[bytes] = []
        node = _find(self._root, path.split(b"/"), 1, values)
        if node is None:
            raise errors.NotFound
        route = node.targets.get("GET" if method == "HEAD" else method)
        if route is not None:
            target, params = route
            named = zip(params.__struct_fields__, values, strict=True)
            return Match(target, params(**{name: decode.segment(name, raw) for name, raw in named}))
        allowed = sorted({*node.targets, *(["HEAD"] if "GET" in node.targets else [])})
        raise errors.MethodNotAllowed(f"This path does not take {method[:20]}.", details={"allow": allowed})


def _find(node: _Node[Target], parts: list[bytes], position: int, values: list[bytes]) -> _Node[Target] | None:
    """Search depth first and return the matching node; append the values of its path parameters to `values`."""
    if position == len(parts):
        return node if node.targets else None
    part = parts[position]
    named = node.names.get(part)
    match = _find(named, parts, position + 1, values) if named is not None else None
    if match is not None:
        return match
    if node.parameter is None or not part:
        return None
    values.append(part)
    match = _find(node.parameter, parts, position + 1, values)
    if match is None:
        values.pop()
    return match
