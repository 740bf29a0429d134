"""`gpuaas credential`: private keys for hosts that know no other. A key comes from a file or stdin, never as a word."""

from typing import Annotated

import typer
from gpuaas_contract.credentials import (
    CREDENTIAL_CREATE,
    CREDENTIAL_REVOKE,
    CREDENTIAL_ROTATE,
    CreateCredential,
    Credential,
    RevokeCredential,
    RotateCredential,
)

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.input import ask
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import DryRun, NeededReason

app = run.command_group()

Name = Annotated[str, typer.Argument(metavar="NAME")]
CredentialName = Annotated[str, typer.Argument(metavar="CREDENTIAL", help="Name or id.")]
KeyFile = Annotated[str, typer.Option("--key-file", metavar="FILE", help="The private key; - is stdin.")]
_KEY = "The private key"


@app.callback()
def credential() -> None:
    """A credential is kept in custody: apps may use its key, nobody can read it back."""


@run.command(app)
def create(
    context: typer.Context,
    name: Name,
    key_file: KeyFile = "-",
    username: Annotated[str, typer.Option(metavar="USER", help="Whom to log in as.")] = "",
    dry_run: DryRun = False,
) -> int:
    """Hand a private key over. It must have no passphrase; custody protects it from here on.

    Example: gpuaas credential create rack-7 --username admin --key-file ~/.ssh/rack7

    Example: vault kv get -field=key ssh/rack7 | gpuaas credential create rack-7
    """
    flags = run.flags_of(context)
    private_key = ask.document(flags, key_file, _KEY, f"gpuaas credential create {name} --key-file FILE")
    body = CreateCredential(name=name, private_key=private_key, username=username)
    made = session.run(flags, lambda opened: opened.call(CREDENTIAL_CREATE, body, dry_run=dry_run))
    kinds.show_one(flags, "credentials", made)
    output.talk("Put its public half on the hosts: gpuaas get credential " + name + " -o json")
    return failures.OK


@run.command(app, "list")
def list_credentials(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also revoked ones.")] = False,
) -> int:
    """Credentials of the project: fingerprint, version, last use. Never a key.

    Example: gpuaas credential list
    """
    kinds.list_all(run.flags_of(context), "credentials", kinds.Filters(everything=everything))
    return failures.OK


@run.command(app)
def rotate(context: typer.Context, credential: CredentialName, key_file: KeyFile = "-") -> int:
    """Put another private key in the place of the present one, which is destroyed.

    Example: gpuaas credential rotate rack-7 --key-file ~/.ssh/rack7-new
    """
    flags = run.flags_of(context)
    private_key = ask.document(flags, key_file, _KEY, f"gpuaas credential rotate {credential} --key-file FILE")

    async def work(opened: session.Session) -> Credential:
        found = await lookup.credential(opened, credential)
        body = RotateCredential(private_key=private_key)
        return await opened.call(CREDENTIAL_ROTATE, body, credential_id=found.credential_id)

    kinds.show_one(flags, "credentials", session.run(flags, work))
    return failures.OK


@run.command(app)
def revoke(context: typer.Context, credential: CredentialName, reason: NeededReason) -> int:
    """Destroy a credential's key; what was not opened yet stays closed.

    Example: gpuaas credential revoke rack-7 --reason "hosts are gone"
    """

    async def work(opened: session.Session) -> Credential:
        found = await lookup.credential(opened, credential)
        body = RevokeCredential(reason=reason)
        return await opened.call(CREDENTIAL_REVOKE, body, credential_id=found.credential_id)

    flags = run.flags_of(context)
    kinds.show_one(flags, "credentials", session.run(flags, work))
    return failures.OK
