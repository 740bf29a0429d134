"""`gpuaas service-account`: identities for programs, and the keys they sign in with."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.identity import (
    KEY_GRACE_MAX_S,
    SERVICE_ACCOUNT_CREATE,
    SERVICE_ACCOUNT_DELETE,
    SERVICE_ACCOUNT_DISABLE,
    SERVICE_ACCOUNT_ENABLE,
    SERVICE_ACCOUNT_KEY_CREATE,
    SERVICE_ACCOUNT_KEY_LIST,
    SERVICE_ACCOUNT_KEY_REVOKE,
    SERVICE_ACCOUNT_KEY_ROTATE,
    CreateServiceAccount,
    RotateServiceAccountKey,
    ServiceAccount,
    ServiceAccountKey,
    ServiceAccountKeyInfo,
)
from gpuaas_contract.wire import NoBody

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import home, lookup, session
from gpuaas_cli.input import times
from gpuaas_cli.output import Column, age, clock_time
from gpuaas_cli.runner import run

app = run.command_group()

Name = Annotated[str, typer.Argument(metavar="NAME")]
KeyId = Annotated[str, typer.Argument(metavar="KEY", help="Its id; gpuaas service-account keys NAME lists them.")]

KeyFile = Annotated[str, typer.Option("--key-file", metavar="FILE", help="Write a new key here, 0600; - is stdout.")]

_KEY_COLUMNS = (
    Column("KEY", lambda one: one.key_id),
    Column("AGE", lambda one: age(one.created_at)),
    Column("USED", lambda one: age(one.last_used_at) if one.last_used_at else ""),
    Column("UNTIL", lambda one: clock_time(one.expires_at) if one.expires_at else ""),
    Column("BY", lambda one: one.created_by),
)


@app.callback()
def service_account() -> None:
    """Service accounts are how programs sign in."""


@run.command(app)
def create(context: typer.Context, name: Name, key_file: KeyFile = "") -> int:
    """Create a service account, and with --key-file its first key. The secret is never shown, only written.

    Example: gpuaas service-account create slurm-controller --key-file slurm.json
    """
    flags = run.flags_of(context)
    check_new(key_file)
    account, key = session.run(flags, lambda opened: _create(opened, name, with_key=bool(key_file)))
    if key_file != "-":
        kinds.show_one(flags, "service-accounts", account)
    if key is not None:
        write_key(key_file, key)
    return failures.OK


@run.command(app, "list")
def list_accounts(context: typer.Context) -> int:
    """Service accounts of the project.

    Example: gpuaas service-account list
    """
    kinds.list_all(run.flags_of(context), "service-accounts")
    return failures.OK


def _changing_command(verb: str, endpoint: Endpoint[NoBody, ServiceAccount], meaning: str) -> None:
    @run.command(app, verb, help=f"{meaning}\n\nExample: gpuaas service-account {verb} slurm-controller")
    def change(context: typer.Context, name: Name) -> int:
        async def work(opened: session.Session) -> ServiceAccount:
            found = await lookup.service_account(opened, name)
            return await opened.call(endpoint, service_account_id=found.service_account_id)

        flags = run.flags_of(context)
        kinds.show_one(flags, "service-accounts", session.run(flags, work))
        return failures.OK


_changing_command(
    "disable", SERVICE_ACCOUNT_DISABLE, "End all of its sessions at once; its keys open nothing until it is enabled."
)
_changing_command("enable", SERVICE_ACCOUNT_ENABLE, "Let a disabled service account sign in again, with its keys.")
_changing_command("delete", SERVICE_ACCOUNT_DELETE, "Delete a service account with all its keys, for good.")


@run.command(app)
def key(context: typer.Context, name: Name, key_file: KeyFile) -> int:
    """Make another key for a service account.

    Example: gpuaas service-account key slurm-controller --key-file slurm.json
    """
    check_new(key_file)
    write_key(key_file, session.run(run.flags_of(context), lambda opened: _new_key(opened, name)))
    return failures.OK


@run.command(app)
def keys(context: typer.Context, name: Name) -> int:
    """Keys of a service account: when they were made and last used. Never a secret.

    Example: gpuaas service-account keys slurm-controller
    """

    async def work(opened: session.Session) -> list[ServiceAccountKeyInfo]:
        account = await lookup.service_account(opened, name)
        return await opened.every(SERVICE_ACCOUNT_KEY_LIST, service_account_id=account.service_account_id)

    flags = run.flags_of(context)
    output.show_list(flags, session.run(flags, work), _KEY_COLUMNS, _key_id)
    return failures.OK


@run.command(app, "rotate-key")
def rotate_key(
    context: typer.Context,
    name: Name,
    key: KeyId,
    key_file: KeyFile,
    grace: Annotated[str, typer.Option(metavar="TIME", help="How long the old key still works: 10m, 1h.")] = "0s",
) -> int:
    """Put a new key in the place of another; a day of grace at the most.

    Example: gpuaas service-account rotate-key slurm-controller key_01k9z0c5p3v2m8q7r6t5w4x3y2 --key-file new.json
    """
    check_new(key_file)
    body = RotateServiceAccountKey(grace_s=times.span_s(grace, "--grace"))
    if body.grace_s > KEY_GRACE_MAX_S:
        raise failures.usage(f"{grace} of grace is more than a day", "--grace 24h")

    async def work(opened: session.Session) -> ServiceAccountKey:
        account = await lookup.service_account(opened, name)
        return await opened.call(
            SERVICE_ACCOUNT_KEY_ROTATE, body, service_account_id=account.service_account_id, key_id=key
        )

    write_key(key_file, session.run(run.flags_of(context), work))
    return failures.OK


@run.command(app, "revoke-key")
def revoke_key(context: typer.Context, name: Name, key: KeyId) -> int:
    """End a key and the sessions that were made with it.

    Example: gpuaas service-account revoke-key slurm-controller key_01k9z0c5p3v2m8q7r6t5w4x3y2
    """

    async def work(opened: session.Session) -> ServiceAccountKeyInfo:
        account = await lookup.service_account(opened, name)
        return await opened.call(SERVICE_ACCOUNT_KEY_REVOKE, service_account_id=account.service_account_id, key_id=key)

    flags = run.flags_of(context)
    output.show_one(flags, session.run(flags, work), _KEY_COLUMNS, _key_id)
    return failures.OK


def check_new(key_file: str) -> None:
    """A key that is in use must not be lost to a typo, and none is made that cannot be written."""
    if key_file not in ("", "-") and Path(key_file).exists():
        raise failures.Failure(f"{key_file} exists; it may hold a key in use", fix="Name another file.", code="exists")


def write_key(key_file: str, key: ServiceAccountKey) -> None:
    content = json.dumps({"key_id": key.key_id, "client_secret": key.client_secret}) + "\n"
    if key_file == "-":
        sys.stdout.write(content)
        return
    home.write_private(Path(key_file).absolute(), content.encode())
    output.talk(f"Key {key.key_id} is in {key_file}; the platform keeps no copy of its secret.")


def _key_id(key: ServiceAccountKeyInfo) -> str:
    return key.key_id


async def _create(
    opened: session.Session, name: str, *, with_key: bool
) -> tuple[ServiceAccount, ServiceAccountKey | None]:
    account = await opened.call(SERVICE_ACCOUNT_CREATE, CreateServiceAccount(name=name))
    if not with_key:
        return account, None
    made = await opened.call(SERVICE_ACCOUNT_KEY_CREATE, service_account_id=account.service_account_id)
    return account, made


async def _new_key(opened: session.Session, name: str) -> ServiceAccountKey:
    account = await lookup.service_account(opened, name)
    return await opened.call(SERVICE_ACCOUNT_KEY_CREATE, service_account_id=account.service_account_id)
