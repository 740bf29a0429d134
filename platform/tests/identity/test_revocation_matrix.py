"""Attack: a caller who lost a right continues with what they hold. Each revocation is tried against each thing that can
be held; all must take effect within five seconds. `docs/explanation/identity.md` has the same table.

Timers of streams and long polls are short here; for the loops the clock moves by five seconds."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import revocation_holders as holders
from gpuaas_contract import errors
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from gpuaas_platform.edge import streams
from gpuaas_platform.kit.settings import Settings
from platform_world import World
from revocation_holders import Holder
from server_process import until

EFFECT_S_MAX = 5
DEADLINE_S = 20
"""Less than the long polls of this test may wait, so that only a refusal ends them in time."""
CHECK_S_MAX = streams.CHECK_S_MAX
"""As in production; a fixture makes it longer."""
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "identity.md"

Revocation = tuple[Callable[[World], Awaitable[Holder]], Callable[[Holder], Awaitable[None]], dict[str, str]]
EFFECTS = ("request", "stream", "long poll", "running operation", "machine access", "unopened secret")
ENDS = "ends"
BY_CONTROLLERS = "only service accounts work on operations and open secrets; operations that people requested continue"
OF_THE_PROJECT = "events belong to the project, and the account remains in the project"
IN_USE = "only a project that owns nothing can be deleted"
FREE = "only a node without an allocation can be retired; nodes have no event stream, operations or secrets"
TO_END_IT = "the controller has to end the work that was accepted; it gets no machine and no secret for it"
ACCOUNT_STAYS = "only the work on this operation is taken away; the account still has its rights"


def _of_person() -> dict[str, str]:
    ended = ("request", "stream", "long poll", "machine access")
    return {effect: ENDS if effect in ended else BY_CONTROLLERS for effect in EFFECTS}


def _of_account(**others: str) -> dict[str, str]:
    return {effect: others.get(effect.replace(" ", "_"), ENDS) for effect in EFFECTS}


MATRIX: dict[str, Revocation] = {
    "a user's session is ended": (holders.person, holders.end_session, _of_person()),
    "an admin sets a user's password": (holders.person, holders.set_password, _of_person()),
    "a user is disabled": (holders.person, holders.disable_user, _of_person()),
    "a user's role is removed": (holders.person, holders.remove_role, _of_person()),
    "a key of a service account is revoked": (holders.account, holders.revoke_key, _of_account()),
    "a service account is disabled": (holders.account, holders.disable_account, _of_account()),
    "a service account is unbound from the app": (
        holders.account,
        holders.unbind_account,
        _of_account(stream=OF_THE_PROJECT),
    ),
    "a project dismisses an account of the organisation": (
        holders.account_of_org,
        holders.dismiss_account,
        _of_account(),
    ),
    "an account of the organisation is deleted": (
        holders.account_of_org,
        holders.delete_account_of_org,
        _of_account(),
    ),
    "the entitlement is disabled, for an account of the organisation": (
        holders.account_of_org,
        holders.withdraw_entitlement,
        _of_account(),
    ),
    "the entitlement is disabled, during a deploy": (
        holders.deployer,
        holders.withdraw_entitlement,
        _of_account(stream=OF_THE_PROJECT, long_poll=TO_END_IT, running_operation=TO_END_IT),
    ),
    "a node is retired": (
        holders.machine,
        holders.retire_node,
        _of_account(stream=FREE, running_operation=FREE, machine_access=FREE, unopened_secret=FREE),
    ),
    "a person forces the end of an operation": (
        holders.account,
        holders.force_end,
        _of_account(request=ACCOUNT_STAYS, stream=ACCOUNT_STAYS, long_poll=ACCOUNT_STAYS),
    ),
    "a project is deleted": (
        holders.visitor,
        holders.delete_project,
        _of_account(running_operation=IN_USE, machine_access=IN_USE, unopened_secret=IN_USE),
    ),
}
CELLS = [(name, effect) for name, (_, _, cells) in MATRIX.items() for effect in EFFECTS if cells[effect] == ENDS]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, stream_recheck_s=0.05)


@pytest.mark.parametrize(("revocation", "effect"), CELLS)
async def test_a_revocation_ends_what_is_held(world: World, revocation: str, effect: str) -> None:
    make, revoke, _ = MATRIX[revocation]
    holder = await make(world)
    async with asyncio.timeout(DEADLINE_S):
        await _ATTEMPTS[effect](holder, revoke)


def test_streams_and_long_polls_are_checked_often_enough() -> None:
    assert Settings.stream_recheck_s + CHECK_S_MAX <= EFFECT_S_MAX


def test_the_documentation_shows_the_matrix() -> None:
    assert _table() in PAGE.read_text()


Revoke = Callable[[Holder], Awaitable[None]]
_LOST = (errors.TokenInvalid, errors.PermissionDenied, errors.NotEntitled, errors.LeaseLost)
_REFUSED = {error.code for error in (*_LOST, errors.NotFound)}


async def _request(holder: Holder, revoke: Revoke) -> None:
    assert (await holder.request(0)).is_success
    await revoke(holder)
    assert (await holder.request(0)).json()["code"] in _REFUSED


async def _stream(holder: Holder, revoke: Revoke) -> None:
    serving = await holders.open_stream(holder)
    await revoke(holder)
    await serving


async def _long_poll(holder: Holder, revoke: Revoke) -> None:
    """It ends by itself: the revocation is all that happens."""
    waiting = asyncio.ensure_future(holder.request(30))
    await until(lambda: holder.world.site.hub.waiting == 1)
    await revoke(holder)
    assert (await waiting).json().get("code") in _REFUSED


async def _operation(holder: Holder, revoke: Revoke) -> None:
    held = holder.working()
    await held.heartbeat()
    await revoke(holder)
    for report in (held.heartbeat, lambda: held.step("install"), held.complete, held.fail):
        with pytest.raises((*_LOST, errors.NotFound)):
            await report()


async def _machine_access(holder: Holder, revoke: Revoke) -> None:
    await grants_reconcile.sweep(holder.world.site)
    assert (await holder.grant()).state == "active"
    await revoke(holder)
    for _ in range(EFFECT_S_MAX):
        holder.world.clock.forward(1)
        await holder.world.sweep()
        await grants_reconcile.sweep(holder.world.site)
    grant = await holder.grant()
    assert grant.state == "ended"
    assert await holder.refused_serials() == [grant.serial]


async def _secret(holder: Holder, revoke: Revoke) -> None:
    await revoke(holder)
    with pytest.raises((*_LOST, errors.NotFound)):
        await holder.working().open(holder.delivery_id)


_ATTEMPTS = dict(zip(EFFECTS, (_request, _stream, _long_poll, _operation, _machine_access, _secret), strict=True))


def _table() -> str:
    reasons = list(dict.fromkeys(cell for _, _, cells in MATRIX.values() for cell in cells.values() if cell != ENDS))
    letter = {reason: f"({chr(ord('a') + at)})" for at, reason in enumerate(reasons)}
    lines = [f"| revocation | {' | '.join(EFFECTS)} |", "|---" * (len(EFFECTS) + 1) + "|"]
    for name, (_, _, cells) in MATRIX.items():
        lines.append(f"| {name} | {' | '.join(letter.get(cells[effect], ENDS) for effect in EFFECTS)} |")
    return "\n".join([*lines, "", *(f"- {letter[reason]} {reason}." for reason in reasons)])
