"""Create, disable and enable users, and set passwords. The `prepare` functions hash the password before the transaction
begins, because hashing is slow."""

import functools
from dataclasses import dataclass

from gpuaas_contract import errors
from gpuaas_contract.paths import Path, UserPath
from gpuaas_contract.users import ChangePassword, CreateUser, SetPassword, User
from gpuaas_contract.wire import NoBody, Page, PageQuery

from gpuaas_platform.call import Call
from gpuaas_platform.identity import authority, rules, service, store
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.identity.users import passwords
from gpuaas_platform.kit import db, paging


@dataclass(frozen=True)
class Prepared:
    """The content of a request with a password, as the transaction gets it: the password is replaced by its hash."""

    name: str = ""
    password_hash: str = ""
    checked_hash: str = ""
    """The stored hash that the current password was checked against."""


async def prepare_create(_: Call, body: CreateUser) -> Prepared:
    return Prepared(name=body.name, password_hash=await passwords.hashed(body.password) if body.password else "")


async def create(tx: db.Tx, call: Call, wanted: Prepared) -> User:
    rules.check_user_name(wanted.name)
    if await store.user_by_name(tx, wanted.name) is not None:
        raise errors.Conflict(f"A user named {wanted.name} already exists.")
    user_id = await store.add_user(
        tx, wanted.name, password_hash=wanted.password_hash, created_by=call.caller.actor_id, now=call.now
    )
    return await named(tx, user_id)


async def list_users(reader: db.Reader, call: Call[Path, PageQuery]) -> Page[User]:
    read = functools.partial(store.users_after, reader)
    return await paging.page("users", call.query, read, lambda user: user.user_id)


async def get(reader: db.Reader, call: Call[UserPath]) -> User:
    return await named(reader, call.path.user_id)


async def named(reader: db.Reader, id_or_name: str) -> User:
    row = await store.user_by_name_or_id(reader, id_or_name)
    if row is None:
        raise errors.NotFound
    return store.shown_user(row)


async def with_name(reader: db.Reader, name: str) -> User:
    row = await store.user_by_name(reader, name)
    if row is None:
        raise errors.NotFound
    return store.shown_user(row)


async def id_of(reader: db.Reader, call: Call, id_or_name: str) -> str:
    """Return the id of a user, given by id or, if the caller may list users, by name. Refuse an unknown one."""
    row, by_name = await store.user(reader, id_or_name), authority.can_everywhere(call.caller, "identity.user.read")
    if row is None and by_name:
        row = await store.user_by_name(reader, id_or_name)
    if row is None:
        only = "" if by_name else " You may not list people, so name the person by id."
        raise errors.ValidationFailed(
            f"There is no user with this {'name or id' if by_name else 'id'}.{only}",
            details={"field": "user_id"},
            fix="gpuaas user list" if by_name else "Ask the person for the id, which `gpuaas whoami` shows.",
        )
    return str(row["user_id"])


async def disable(tx: db.Tx, call: Call[UserPath], _: NoBody) -> User:
    user_id = (await get(tx, call)).user_id
    role = ("platform_admin", "platform")
    if await store.holds(tx, user_id, *role) and not await store.others_holding(tx, *role, apart_from=user_id):
        raise errors.Conflict(
            "This is the last platform admin who can sign in, so this person cannot be disabled.",
            fix="Give another user the role first: gpuaas binding grant USER platform_admin --platform",
        )
    await store.set_user_state(tx, user_id, "disabled")
    tx.wake(store.PEOPLE_TOPIC)
    await token_store.end_tokens_of(tx, user_id)
    return await named(tx, user_id)


async def enable(tx: db.Tx, call: Call[UserPath], _: NoBody) -> User:
    user_id = (await get(tx, call)).user_id
    await store.set_user_state(tx, user_id, "active")
    tx.wake(store.PEOPLE_TOPIC)
    return await named(tx, user_id)


async def prepare_password(_: Call, body: SetPassword) -> Prepared:
    return Prepared(password_hash=await passwords.hashed(body.password))


async def set_password(tx: db.Tx, call: Call[UserPath], wanted: Prepared) -> User:
    user_id = (await get(tx, call)).user_id
    await store.set_password_hash(tx, user_id, wanted.password_hash)
    await token_store.end_tokens_of(tx, user_id)
    return await named(tx, user_id)


async def prepare_own_password(call: Call, body: ChangePassword) -> Prepared:
    """Check the current password and hash the new one. A person who finds an open session of another user must not be
    able to take over the account, so the current password is needed; guesses count as failed sign-ins."""
    row = await store.user(call.site.database.reader, call.caller.actor_id)
    if row is None or not row["password_hash"]:
        raise errors.Conflict(
            "You sign in without a password, so there is none to change.",
            fix="A platform admin can set a password for you.",
        )
    keys = await service.attempt_keys(call, call.caller.actor_id, row["name"])
    present = body.present_password
    if not await passwords.matches(call.site.attempts, keys, call.now, row["password_hash"], present):
        raise errors.CredentialsInvalid("The present password is wrong.")
    return Prepared(password_hash=await passwords.hashed(body.new_password), checked_hash=row["password_hash"])


async def change_own_password(tx: db.Tx, call: Call, wanted: Prepared) -> User:
    user_id = call.caller.actor_id
    row = await store.user(tx, user_id)
    if row is None or row["password_hash"] != wanted.checked_hash:
        raise errors.Conflict("The password was changed by another request.")
    await store.set_password_hash(tx, user_id, wanted.password_hash)
    await token_store.end_tokens_of(tx, user_id, apart_from=call.caller.session_id)
    return await named(tx, user_id)
