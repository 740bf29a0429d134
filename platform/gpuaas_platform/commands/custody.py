"""`gpuaas-platform custody …`: manage the key that encrypts all secrets. `gpuaas-platform unseal`: send a running
server the passphrase of its key. `main` calls both with the options.

`unseal` issues an admin's token that is valid for one minute, so its user must be able to write the data folder. This
is audited. The passphrase is read from standard input and sent only to the server.
"""

import argparse
import asyncio
import getpass
import ssl
import sys
from pathlib import Path

import httpx
import msgspec
from gpuaas_contract import custody as contract
from gpuaas_contract import errors

from gpuaas_platform import server
from gpuaas_platform.call import Caller, system_origin
from gpuaas_platform.custody import envelope, key_files
from gpuaas_platform.custody import port as custody
from gpuaas_platform.custody.embedded import EmbeddedCustody
from gpuaas_platform.custody.key_files import PlainFile, SealedFile
from gpuaas_platform.identity import service as identity
from gpuaas_platform.identity.users import service as users
from gpuaas_platform.kit import clock, ids, urls
from gpuaas_platform.kit.settings import Settings

_EXAMPLES = f"""examples:
  gpuaas-platform custody status --data ./cloud
      where the key is, whether it is sealed, how many values each key wraps
  gpuaas-platform custody status --data ./cloud --vault-address https://vault:8200 --vault-token-file ./vault-token
      whether Vault lets the platform in; if not, why, and the next command
  gpuaas-platform custody rotate --data ./cloud
      a new key in ./cloud/{key_files.PLAIN}, with the server running or not; interrupted, run it again
  gpuaas-platform custody seal --data ./cloud < passphrase
      the key from now on in ./cloud/{key_files.SEALED}, under the passphrase; the server starts sealed
  gpuaas-platform custody key | systemd-creds encrypt --name={key_files.PLAIN} - {key_files.PLAIN}.encrypted
      a new key for systemd to keep and to give to the server (LoadCredentialEncrypted={key_files.PLAIN}:…)
"""
_UNSEAL_EXAMPLES = """examples:
  gpuaas-platform unseal --data ./cloud < passphrase
      open the secrets of the server on http://127.0.0.1:7070
"""
_TOKEN_S = 60
_TIMEOUT_S = 60
_HELP = {
    "status": "show where the key is and what it wraps",
    "rotate": "replace the key",
    "seal": "put the key under a passphrase",
    "key": "print a new key for a store outside of the platform",
}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the subcommands of `custody`. The caller adds options that other commands have, too."""
    style, text = argparse.RawDescriptionHelpFormatter, "care for the keys of secrets"
    parser = commands.add_parser("custody", help=text, epilog=_EXAMPLES, formatter_class=style)
    acts, made = parser.add_subparsers(dest="act", required=True), {}
    for name, text in _HELP.items():
        made[name] = acts.add_parser(name, help=text, epilog=_EXAMPLES, formatter_class=style)
    made["key"].add_argument("--beside", type=Path, help="file with the present keys; the new key is added to these")
    return made


def add_unseal_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    style, text = argparse.RawDescriptionHelpFormatter, "open a sealed server's secrets"
    parser = commands.add_parser("unseal", help=text, epilog=_UNSEAL_EXAMPLES, formatter_class=style)
    text = "URL of the server to unseal; each server is unsealed separately"
    parser.add_argument("--server", default="http://127.0.0.1:7070", help=text)
    parser.add_argument("--name", default="admin", help="name of the admin as whom the server is unsealed")
    return parser


def run(settings: Settings, options: argparse.Namespace) -> int:
    try:
        if options.act == "key":
            _print_key(options.beside)
        elif options.act == "seal":
            asyncio.run(server.refuse_newer_database(settings))
            _seal(settings)
        else:
            server.refuse_missing_platform(settings)
            asyncio.run({"rotate": _rotate, "status": _status}[options.act](settings))
    except custody.CustodyError as error:
        sys.stderr.write(f"gpuaas-platform: custody {options.act} failed: {error}\n")
        sys.stderr.write(f"Nothing is lost. Next: gpuaas-platform custody {options.act}, again\n")
        return 2
    return 0


def unseal(settings: Settings, options: argparse.Namespace) -> int:
    server.refuse_missing_platform(settings)
    if not urls.is_protected(options.server):
        message = f"--server takes an https URL, or http on loopback, not {options.server!r}"
        raise server.CannotStart(message, "Example: --server https://10.0.0.5:7443")
    try:
        passphrase = read_passphrase("Passphrase: ")
        status = asyncio.run(_unseal(settings, options, passphrase))
    except custody.CustodyError as error:
        sys.stderr.write(f"gpuaas-platform: {options.server} was not unsealed: {error}\n")
        return 2
    except httpx.HTTPError as error:
        sys.stderr.write(f"gpuaas-platform: {options.server} was not unsealed: {error}\n")
        sys.stderr.write("  Check that it runs, and its address: --server URL\n")
        return 2
    sys.stdout.write(f"{'still sealed' if status.sealed else 'open'}: {status.key}\n")
    return 0


def read_passphrase(prompt: str) -> str:
    """Read a passphrase from the terminal without echo, or from standard input: other users can see arguments."""
    given = getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not given:
        raise custody.PassphraseWrong("no passphrase was given; type it, or pass it as standard input")
    return given


def _print_key(beside: Path | None) -> None:
    present = PlainFile(beside).read() if beside is not None else {}
    sys.stdout.write(msgspec.json.encode({**present, ids.new("kek"): envelope.new_key()}).decode() + "\n")


def _seal(settings: Settings) -> None:
    """Seal the key file. The plain file is deleted after the sealed file was written and opened with the passphrase."""
    plain, sealed = PlainFile(settings.data_dir / key_files.PLAIN), SealedFile(settings.data_dir / key_files.SEALED)
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    passphrase = read_passphrase("New passphrase: ")
    if sys.stdin.isatty() and read_passphrase("The same again: ") != passphrase:
        raise custody.PassphraseWrong("the two passphrases differ; nothing was changed")
    present = plain.read()
    if present and not sealed.path.exists():
        sealed.seal(present, passphrase)
    sealed.open(passphrase)
    if not present.items() <= sealed.read().items():
        raise custody.Unreadable(f"{sealed.path} holds other keys than {plain.path}; move one of them away")
    plain.path.unlink(missing_ok=True)
    sys.stdout.write(f"the key is in {sealed.path}; keep the passphrase: without it every secret is lost\n")
    sys.stdout.write("restart the server, then: gpuaas-platform unseal\n")


async def _rotate(settings: Settings) -> None:
    async with server.open_site(settings) as site:
        store = EmbeddedCustody.opened(settings, site.database)
        if (await store.status()).sealed:
            await store.unseal(read_passphrase("Passphrase: "))
        async for progress in store.rotate():
            sys.stdout.write(f"{progress}\n")


async def _status(settings: Settings) -> None:
    async with server.open_site(settings) as site:
        status = await site.custody.status()
        sys.stdout.write(f"store   {status.store}\nkey     {status.key}\n")
        if isinstance(site.custody, EmbeddedCustody):
            counted = await site.custody.counted()
            for key_id, values in counted.values_by_key.items():
                sys.stdout.write(f"{key_id} wraps {values} values{', present' * (key_id == counted.present)}\n")
            return
        # Only Vault has a state to show here. The embedded store's state is in the memory of the running server.
        state = "refused" if status.refused else "not open" if status.sealed else "open"
        sys.stdout.write(f"state   {state}\n" + (f"next    {status.fix}\n" if status.fix else ""))


async def _unseal(settings: Settings, options: argparse.Namespace, passphrase: str) -> contract.CustodyStatus:
    async with server.open_site(settings) as site:
        try:
            user = await users.with_name(site.database.reader, options.name)
        except errors.NotFound as error:
            raise custody.Unavailable(f"there is no user {options.name}; name an admin: --name NAME") from error
        origin, caller = system_origin(clock.utc_now()), Caller("user", user.user_id, user.name)
        issued = await site.database.write(lambda tx: identity.issue_token(tx, origin, caller, _TOKEN_S))
        return await _post(options.server, issued.access_token, passphrase, site.ca_pem)


async def _post(url: str, token: str, passphrase: str, ca_pem: str) -> contract.CustodyStatus:
    verify = ssl.create_default_context(cadata=ca_pem) if url.startswith("https") else False
    async with httpx.AsyncClient(base_url=url, verify=verify, timeout=_TIMEOUT_S, trust_env=False) as client:
        answer = await client.post(
            contract.UNSEAL.path,
            content=msgspec.json.encode(contract.Unseal(passphrase=passphrase)),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
    if answer.is_error:
        raise custody.PassphraseWrong(str(answer.json().get("message", answer.status_code)))
    return msgspec.json.decode(answer.content, type=contract.CustodyStatus)
