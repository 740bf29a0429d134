"""Passwords: argon2id, in threads of its own and outside every transaction. `service` and `users` call it."""

import asyncio
import datetime
import functools
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import argon2
from gpuaas_contract import errors
from gpuaas_contract.users import PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN

from gpuaas_platform.kit.attempts import Attempts

hasher = argon2.PasswordHasher()
"""argon2id with the library's costs: 64 MiB, three passes."""
# Each hash needs 64 MiB, and attempts in progress are not counted yet: so only a few run at a time.
_WORKERS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="passwords")


async def hashed(password: str) -> str:
    if not PASSWORD_LENGTH_MIN <= len(password) <= PASSWORD_LENGTH_MAX:
        raise errors.ValidationFailed(
            f"A password has {PASSWORD_LENGTH_MIN} to {PASSWORD_LENGTH_MAX} characters.", details={"field": "password"}
        )
    return await asyncio.get_running_loop().run_in_executor(_WORKERS, hasher.hash, password)


async def matches(
    attempts: Attempts, keys: Sequence[str], now: datetime.datetime, password_hash: str, password: str
) -> bool:
    """A failure counts under every key; too many are refused before anything is hashed."""
    return await asyncio.get_running_loop().run_in_executor(
        _WORKERS, _try, attempts, keys, now, password_hash, password
    )


def _try(attempts: Attempts, keys: Sequence[str], now: datetime.datetime, password_hash: str, password: str) -> bool:
    wait_s = attempts.wait_s(keys, now)
    if wait_s:
        raise errors.TooManyAttempts(details={"retry_after_s": wait_s})
    no_password = _no_password()  # for every attempt, so that the time of the first one reveals nothing
    try:
        return hasher.verify(password_hash or no_password, password[: PASSWORD_LENGTH_MAX + 1])
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        attempts.failed(keys, now)
        return False


@functools.cache
def _no_password() -> str:
    """Return a hash to verify where there is no password, so that the answer takes as long. Random for each start: a
    person who knew its password could sign in as every user without one."""
    return hasher.hash(secrets.token_hex())
