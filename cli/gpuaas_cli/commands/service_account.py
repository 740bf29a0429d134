"""`gpuaas service-account`: identities for programs, and the keys they sign in with."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from gpuaas_contract.identity import (
    SERVICE_ACCOUNT_CREATE,
    SERVICE_ACCOUNT_KEY_CREATE,
    CreateServiceAccount,
    ServiceAccount,
    ServiceAccountKey,
)

from gpuaas_cli import failures, home, kinds, lookup, output, running, session

app = running.command_group()

Name = Annotated[str, typer.Argument(metavar="NAME")]

KeyFile = Annotated[str, typer.Option("--key-file", metavar="FILE", help="Write a new key here, 0600; - is stdout.")]


@app.callback()
def service_account() -> None:
    """Service accounts are how programs sign in."""


@running.command(app)
def create(context: typer.Context, name: Name, key_file: KeyFile = "") -> int:
    """Create a service account, and with --key-file its first key. The secret is never shown, only written.

    Example: gpuaas service-account create slurm-controller --key-file slurm.json
    """
    flags = running.flags_of(context)
    check_new(key_file)
    account, key = session.run(flags, lambda opened: _create(opened, name, with_key=bool(key_file)))
    if key_file != "-":
        kinds.show_one(flags, "service-accounts", account)
    if key is not None:
        write_key(key_file, key)
    return failures.OK


@running.command(app)
def key(context: typer.Context, name: Name, key_file: KeyFile) -> int:
    """Make another key for a service account.

    Example: gpuaas service-account key slurm-controller --key-file slurm.json
    """
    check_new(key_file)
    write_key(key_file, session.run(running.flags_of(context), lambda opened: _new_key(opened, name)))
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
