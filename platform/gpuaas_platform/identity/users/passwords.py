"""Hash and check passwords (argon2id), in its own threads and outside transactions. `service` and `users` call it."""

import asyncio
import datetime
import functools
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import argon2
from gpuaas_contract import errors
from gpuaas_contract.users import PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN

from gpuaas_platform.kit.attempts import Attempts, Key

hasher = argon2.PasswordHasher()
"""argon2id with the library's default parameters: 64 MiB, three passes."""
# Each hash needs 64 MiB, and attempts in progress are not counted as failures yet, so only two run at a time.
_WORKERS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="passwords")


async def hashed(password: str) -> str:
    if not PASSWORD_LENGTH_MIN <= len(password) <= PASSWORD_LENGTH_MAX:
        raise errors.ValidationFailed(
            f"A password has {PASSWORD_LENGTH_MIN} to {PASSWORD_LENGTH_MAX} characters.", details={"field": "password"}
        )
    return await asyncio.get_running_loop().run_in_executor(_WORKERS, hasher.hash, password)


async def matches(
    attempts: Attempts, keys: Sequence[Key], now: datetime.datetime, password_hash: str, password: str
) -> bool:
    """Return whether the password is right. A failure counts for each key; after too many, raise without hashing."""
    _check_wait(attempts, keys, now)  # also here, so that a refused attempt does not wait for a free thread
    return await asyncio.get_running_loop().run_in_executor(
        _WORKERS, _try, attempts, keys, now, password_hash, password
    )


def _try(attempts: Attempts, keys: Sequence[Key], now: datetime.datetime, password_hash: str, password: str) -> bool:
    _check_wait(attempts, keys, now)
    no_password = _no_password()  # also if there is a hash, so that timing does not reveal whether the user exists
    try:
        return hasher.verify(password_hash or no_password, password[: PASSWORD_LENGTH_MAX + 1])
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        attempts.failed(keys, now)
        return False


def _check_wait(attempts: Attempts, keys: Sequence[Key], now: datetime.datetime) -> None:
    wait_s = attempts.wait_s(keys, now)
    if wait_s:
        raise errors.TooManyAttempts(details={"retry_after_s": wait_s})


@functools.cache
def _no_password() -> str:
    """Return a hash to verify if the user has no password, so that the check takes the same time. It is random for each
    start: if its password were known, anyone could sign in as a user who has no password."""
    return hasher.hash(secrets.token_hex())
