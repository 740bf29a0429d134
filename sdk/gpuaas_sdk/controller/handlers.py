"""The handlers that an app declared. `App` fills the table; `runner` runs the handler of each claimed operation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from gpuaas_contract.catalog import Manifest, ReplaceOrder
from gpuaas_contract.operations import ASKING_KINDS, Preview
from msgspec.structs import replace

from gpuaas_sdk.controller import rules
from gpuaas_sdk.controller.declared_steps import DeclaredStep
from gpuaas_sdk.controller.inputs import Forms
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.controller.reconciliation import Health
from gpuaas_sdk.failures import NeedsOperator, Refused, Temporary

REPLACE_NOTES: dict[ReplaceOrder, str] = {
    "new_first": "New machine first: it serves before the old one leaves.",
    "old_first": "Old machine first: it stops serving before the new one takes its place.",
}
"""What the preview of a replace shows, by the order that the manifest declares."""

Handler = Callable[[Operation], Awaitable[None]]
"""A function for an operation or its undo: `async def deploy(op: Operation) -> None`.

@app.operation("deploy")
async def deploy(op: Operation) -> None:
    await op.each(op.to_do, join)"""
ActionHandler = Callable[[Operation], Awaitable[dict[str, Any] | None]]
"""A function for an action: `async def users(op: Operation) -> dict[str, Any]`. What it returns is the result.

@app.action("users.list")
async def users(op: Operation) -> dict[str, Any]:
    return {"rows": [{"login": person.login} for person in await op.people()]}"""
PreviewHandler = Callable[[Operation], Awaitable[Preview]]
"""A function for a dry run: `async def preview(op: Operation) -> Preview`. It changes nothing.

@app.preview("drain")
async def preview(op: Operation) -> Preview:
    return Preview(answered=True, source="kv status")"""
Key = tuple[str, str]
"""Operation kind and role; an empty role means every role."""
AnyHandler = TypeVar("AnyHandler")


class Result(NamedTuple):
    """What a handler returns to the platform, apart from the state of its members."""

    result: dict[str, Any] | None = None
    preview: Preview | None = None


@dataclass
class Handlers:
    """The handlers of one app."""

    app_slug: str
    forms: Forms = field(default_factory=Forms)
    """The forms of the app's manifest, whose defaults its handlers get."""
    operations: dict[Key, Handler] = field(default_factory=dict)
    undos: dict[Key, Handler] = field(default_factory=dict)
    previews: dict[Key, PreviewHandler] = field(default_factory=dict)
    actions: dict[str, ActionHandler] = field(default_factory=dict)
    steps: dict[str, DeclaredStep[*tuple[Any, ...]]] = field(default_factory=dict)
    """The steps of `App.step`, by name."""
    replace_orders: dict[str, ReplaceOrder] = field(default_factory=dict)
    """The order in which the handler of replace changes machines, by role; an empty role means every role."""
    declared_orders: dict[str, ReplaceOrder] = field(default_factory=dict)
    """The order that the manifest declares, by role."""
    health: Health | None = None
    health_every_s: float = 10.0
    """The interval between two looks at an instance."""

    @property
    def undoes(self) -> list[str]:
        """What the app can undo, as a claim lists it: a kind, or a kind for one role."""
        return sorted(f"{kind}/{role}" if role else kind for kind, role in self.undos)

    @property
    def step_undos(self) -> dict[str, Callable[..., Awaitable[None]]]:
        """The undo of each declared step that has one, by the name of the step."""
        return {name: step.undone_by for name, step in self.steps.items() if step.undone_by is not None}

    def unkept(self, manifest: Manifest) -> list[str]:
        """Return what the manifest promises and no handler does: operations, actions and health conditions. Pure.

        Undos and previews are not promised there: each claim lists what the app can undo, and a preview without a
        handler is answered so."""
        whole = ("deploy", "decommission", *manifest.instance_operations)
        missing = [kind for kind in whole if (kind, "") not in self.operations]
        missing += [
            f"{kind} of role {role.component_key}"
            for role in manifest.roles
            for kind in role.operations
            if find(self.operations, kind, role.component_key) is None
        ]
        missing += [
            f"replace of role {role.component_key} in the order {role.replace_order}"
            for role in manifest.roles
            if role.replace_order is not None and self._replace_order(role.component_key) != role.replace_order
        ]
        missing += [f"action {action.name}" for action in manifest.actions if action.name not in self.actions]
        if manifest.health and self.health is None:
            missing.append(f"health conditions {', '.join(manifest.health)}")
        return missing

    async def perform(self, op: Operation) -> Result:
        """Run the handler of the operation. Raises `NotSupported` if the app has none."""
        if op.kind == "preview":
            return Result(preview=await self._preview(op))
        if op.kind == "action":
            handle_action = self._needed(self.actions.get(op.action), f"action {op.action}")
            return Result(result=await handle_action(op) or {})
        handle = self._needed(find(self.operations, op.kind, op.component_key), op.kind)
        await handle(op)
        return Result()

    async def undo(self, op: Operation) -> Result:
        """Run the undo handler of the operation. A cancelled action or preview has nothing to undo."""
        if op.kind not in ASKING_KINDS:
            handle = find(self.undos, op.kind, op.component_key)
            if handle is None and op.kind == "repair":
                return Result()  # a repair that stopped halfway leaves its members as they are
            if handle is None:
                raise NeedsOperator(
                    f"The app {self.app_slug} cannot undo {op.kind}; its members stay as they are.",
                    fix=f"gpuaas describe operation {op.id}",
                )
            await handle(op)
        return Result()

    def _replace_order(self, role: str) -> ReplaceOrder | None:
        """Return the order of the handler that runs for this role."""
        own = role if ("replace", role) in self.operations else ""
        return self.replace_orders.get(own)

    async def _preview(self, op: Operation) -> Preview:
        """Return the answer of the app. The order of a replace is a promise of the manifest, so the kit adds it."""
        shown, order = await self._ask(op), self.declared_orders.get(op.component_key)
        if op.preview_of != "replace" or order is None:
            return shown
        return replace(shown, notes=[REPLACE_NOTES[order], *shown.notes])

    async def _ask(self, op: Operation) -> Preview:
        preview = find(self.previews, op.preview_of or "", op.component_key)
        if preview is None:
            return Preview(answered=False, notes=[f"The app {self.app_slug} has no preview of {op.preview_of}."])
        try:
            return await preview(op)
        except Refused as error:
            return Preview(answered=True, refusal=rules.refusal(error))
        except Temporary as error:
            # A person waits for the preview, so it is not tried again.
            return Preview(answered=False, notes=[f"The work is unknown: {error}"])

    def _needed(self, handler: AnyHandler | None, what: str) -> AnyHandler:
        if handler is None:
            raise rules.NotSupported(f"The app {self.app_slug} has no handler for {what}")
        return handler


def find(handlers: dict[Key, AnyHandler], kind: str, role: str) -> AnyHandler | None:
    """Return the handler of the kind for this role; without one, the handler of the kind for every role."""
    return handlers.get((kind, role)) or handlers.get((kind, ""))
