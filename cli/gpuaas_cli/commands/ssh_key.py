"""`gpuaas ssh-key`: your own public keys, for machines where a project lets you in with them."""

from typing import Annotated

import typer
from gpuaas_contract.ssh_keys import SSH_KEY_CREATE, SSH_KEY_DELETE, AddSshKey, SshKey

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.input import ask
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import DryRun

app = run.command_group()


@app.callback()
def ssh_key() -> None:
    """Public keys only; which machines get them, `gpuaas allocation people` says."""


@run.command(app)
def add(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .pub file; - is stdin.")],
    comment: Annotated[str, typer.Option(help="What to call it; else what the file says.")] = "",
    dry_run: DryRun = False,
) -> int:
    """Register a public key of yours.

    Example: gpuaas ssh-key add ~/.ssh/id_ed25519.pub
    """
    flags = run.flags_of(context)
    content = ask.document(flags, file, "The public key", "gpuaas ssh-key add FILE")
    if "PRIVATE KEY" in content:
        raise failures.usage(f"{file} holds a private key; nothing was sent", f"gpuaas ssh-key add {file}.pub")
    body = AddSshKey(public_key=content.strip(), comment=comment)
    added = session.run(flags, lambda opened: opened.call(SSH_KEY_CREATE, body, dry_run=dry_run))
    kinds.show_one(flags, "ssh-keys", added)
    output.talk("  next: gpuaas allocation people NODE --only YOU")
    return failures.OK


@run.command(app, "list")
def list_keys(context: typer.Context) -> int:
    """Your public keys.

    Example: gpuaas ssh-key list
    """
    kinds.list_all(run.flags_of(context), "ssh-keys")
    return failures.OK


@run.command(app)
def delete(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Id, fingerprint, or a comment only one has.")],
) -> int:
    """Take a key of yours off every machine.

    Example: gpuaas ssh-key delete ada@laptop
    """

    async def work(opened: session.Session) -> SshKey:
        found = await lookup.ssh_key(opened, key)
        return await opened.call(SSH_KEY_DELETE, ssh_key_id=found.ssh_key_id)

    flags = run.flags_of(context)
    kinds.show_one(flags, "ssh-keys", session.run(flags, work))
    return failures.OK
