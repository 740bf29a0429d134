"""The handlers an app declared, and which of them answers a claimed operation. Filled by `App`, asked by `runner`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from gpuaas_contract.operations import ASKING_KINDS, Preview

from gpuaas_sdk.controller import rules
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.controller.reconcile import Reconcile
from gpuaas_sdk.failures import NeedsOperator

Handler = Callable[[Operation], Awaitable[None]]
ActionHandler = Callable[[Operation], Awaitable[dict[str, Any] | None]]
PreviewHandler = Callable[[Operation], Awaitable[Preview]]
Key = tuple[str, str]
"""Operation kind and role; an empty role stands for all."""
Found = TypeVar("Found")


class Said(NamedTuple):
    """What a handler brought, beside the members it left where they should be."""

    result: dict[str, Any] | None = None
    preview: Preview | None = None


@dataclass
class Handlers:
    app_slug: str
    operations: dict[Key, Handler] = field(default_factory=dict)
    undos: dict[Key, Handler] = field(default_factory=dict)
    previews: dict[Key, PreviewHandler] = field(default_factory=dict)
    actions: dict[str, ActionHandler] = field(default_factory=dict)
    reconcile: Reconcile | None = None

    async def perform(self, op: Operation) -> Said:
        if op.kind == "preview":
            return Said(preview=await self._preview(op))
        if op.kind == "action":
            act = self._needed(self.actions.get(op.action), f"action {op.action}")
            return Said(result=await act(op) or {})
        handle = self._needed(find(self.operations, op.kind, op.component_key), op.kind)
        await handle(op)
        return Said()

    async def undo(self, op: Operation) -> Said:
        """An action or a preview that was cancelled has nothing to undo."""
        if op.kind not in ASKING_KINDS:
            handle = find(self.undos, op.kind, op.component_key)
            if handle is None:
                raise NeedsOperator(
                    f"{self.app_slug} cannot undo {op.kind}: what was done so far stays as it is.",
                    fix=f"gpuaas describe operation {op.id}",
                )
            await handle(op)
        return Said()

    async def _preview(self, op: Operation) -> Preview:
        look = find(self.previews, op.preview_of or "", op.component_key)
        if look is None:
            return Preview(answered=False, notes=[f"{self.app_slug} does not say what {op.preview_of} would hit."])
        return await look(op)

    def _needed(self, found: Found | None, what: str) -> Found:
        if found is None:
            raise rules.NotSupported(f"{self.app_slug} has no handler for {what}")
        return found


def find(handlers: dict[Key, Found], kind: str, role: str) -> Found | None:
    """The handler of the role goes before the handler of the kind."""
    return handlers.get((kind, role)) or handlers.get((kind, ""))
