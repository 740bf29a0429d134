"""People: made, disabled, enabled, given passwords. Hashing is done before the transaction, by `prepare` functions."""

from dataclasses import dataclass

from gpuaas_contract import errors
from gpuaas_contract.users import ChangePassword, CreateUser, SetPassword, User

from gpuaas_platform.call import Call
from gpuaas_platform.identity import rules, service, store
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.identity.users import passwords
from gpuaas_platform.kit import db


@dataclass(frozen=True)
class Prepared:
    """What the transaction gets to see of a request that holds a password."""

    name: str = ""
    password_hash: str = ""
    checked_hash: str = ""
    """The stored hash the present password was checked against."""


async def prepare_create(_: Call, body: CreateUser) -> Prepared:
    return Prepared(name=body.name, password_hash=await passwords.hashed(body.password) if body.password else "")


async def create(tx: db.Tx, call: Call, wanted: Prepared) -> User:
    if not rules.is_user_name(wanted.name):
        raise errors.ValidationFailed(
            "A name begins with a letter or digit and has up to 63 letters, digits and characters of ._@+-",
            details={"field": "name"},
        )
    if await store.user_by_name(tx, wanted.name) is not None:
        raise errors.Conflict(f"There is somebody named {wanted.name} already.")
    user_id = await store.add_user(
        tx, wanted.name, password_hash=wanted.password_hash, created_by=call.caller.actor_id, now=call.now
    )
    return await get(tx, user_id)


async def get(reader: db.Reader, user_id: str) -> User:
    """By id or by name."""
    row = await store.user(reader, user_id) or await store.user_by_name(reader, user_id)
    if row is None:
        raise errors.NotFound
    return store.shown_user(row)


async def id_of(reader: db.Reader, call: Call, named: str) -> str | None:
    """Of a person that a request names by id or, where the caller may look people up, by name."""
    row = await store.user(reader, named)
    if row is None and rules.sees_everything(call.caller.bindings, "identity.user.read"):
        row = await store.user_by_name(reader, named)
    return str(row["user_id"]) if row is not None else None


async def disable(tx: db.Tx, user_id: str) -> User:
    user_id = (await get(tx, user_id)).user_id
    if await _is_last_admin(tx, user_id):
        raise errors.Conflict(
            "This is the last platform admin who can sign in.",
            fix='Give somebody else the role first: POST /api/v1/admin/bindings {"role": "platform_admin", …}',
        )
    await store.set_user_state(tx, user_id, "disabled")
    await token_store.end_tokens_of(tx, user_id)
    return await get(tx, user_id)


async def enable(tx: db.Tx, user_id: str) -> User:
    user_id = (await get(tx, user_id)).user_id
    await store.set_user_state(tx, user_id, "active")
    return await get(tx, user_id)


async def prepare_password(_: Call, body: SetPassword) -> Prepared:
    return Prepared(password_hash=await passwords.hashed(body.password))


async def set_password(tx: db.Tx, user_id: str, wanted: Prepared) -> User:
    user_id = (await get(tx, user_id)).user_id
    await store.set_password_hash(tx, user_id, wanted.password_hash)
    await token_store.end_tokens_of(tx, user_id)
    return await get(tx, user_id)


async def prepare_own_password(call: Call, body: ChangePassword) -> Prepared:
    """Whoever found an open session must not be able to keep it: the present password is asked for, and guessing
    it is as slow as signing in."""
    row = await store.user(call.site.database.reader, call.caller.actor_id)
    if row is None or not row["password_hash"]:
        raise errors.Conflict("You sign in without a password.", fix="A platform admin can set one for you.")
    keys = service.attempt_keys(call, row["name"])
    present = body.present_password
    if not await passwords.matches(call.site.attempts, keys, call.now, row["password_hash"], present):
        raise errors.CredentialsInvalid("The present password is not right.")
    return Prepared(password_hash=await passwords.hashed(body.new_password), checked_hash=row["password_hash"])


async def change_own_password(tx: db.Tx, call: Call, wanted: Prepared) -> User:
    user_id = call.caller.actor_id
    row = await store.user(tx, user_id)
    if row is None or row["password_hash"] != wanted.checked_hash:
        raise errors.Conflict("The password was changed meanwhile.")
    await store.set_password_hash(tx, user_id, wanted.password_hash)
    await token_store.end_tokens_of(tx, user_id, apart_from=call.caller.session_id)
    return await get(tx, user_id)


async def _is_last_admin(tx: db.Tx, user_id: str) -> bool:
    held = await store.holds(tx, user_id, "platform_admin", "platform")
    return held and not await store.others_holding(tx, "platform_admin", "platform", apart_from=user_id)
