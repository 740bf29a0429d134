"""`gpuaas-platform custody …`: care for the key that wraps every secret. `main` hands its options here."""

import argparse
import asyncio
import getpass
import sys
from pathlib import Path

import msgspec

from gpuaas_platform import server
from gpuaas_platform.custody import choice as custody_choice
from gpuaas_platform.custody import envelope, key_files
from gpuaas_platform.custody import port as custody
from gpuaas_platform.custody.embedded import EmbeddedCustody
from gpuaas_platform.custody.key_files import PlainFile, SealedFile
from gpuaas_platform.kit import ids
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
_HELP = {
    "status": "show where the key is and what it wraps",
    "rotate": "replace the key",
    "seal": "put the key under a passphrase",
    "key": "print a new key for a store outside of the platform",
}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands below `custody`; the caller adds the options it has for others, too."""
    style, text = argparse.RawDescriptionHelpFormatter, "care for the keys of secrets"
    parser = commands.add_parser("custody", help=text, epilog=_EXAMPLES, formatter_class=style)
    acts, made = parser.add_subparsers(dest="act", required=True), {}
    for name, text in _HELP.items():
        made[name] = acts.add_parser(name, help=text, epilog=_EXAMPLES, formatter_class=style)
    made["key"].add_argument("--beside", type=Path, help="file with the present keys; the new one is added to them")
    return made


def run(settings: Settings, options: argparse.Namespace) -> int:
    try:
        if options.act == "key":
            _print_key(options.beside)
        elif options.act == "seal":
            asyncio.run(server.refuse_newer_database(settings))
            _seal(settings)
        else:
            asyncio.run({"rotate": _rotate, "status": _status}[options.act](settings))
    except custody.CustodyError as error:
        sys.stderr.write(f"gpuaas-platform: custody {options.act} failed: {error}\n")
        sys.stderr.write(f"Nothing is lost. Next: gpuaas-platform custody {options.act}, again\n")
        return 2
    return 0


def read_passphrase(prompt: str) -> str:
    """From the terminal without echo, else the first line of standard input: other users can see arguments."""
    given = getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not given:
        raise custody.PassphraseWrong("no passphrase was given; type it, or pass it as standard input")
    return given


def _print_key(beside: Path | None) -> None:
    present = PlainFile(beside).read() if beside is not None else {}
    sys.stdout.write(msgspec.json.encode({**present, ids.new("kek"): envelope.new_key()}).decode() + "\n")


def _seal(settings: Settings) -> None:
    """The plain file is deleted after the sealed file is on the disk and was opened once."""
    plain, sealed = PlainFile(settings.data_dir / key_files.PLAIN), SealedFile(settings.data_dir / key_files.SEALED)
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    passphrase = read_passphrase("New passphrase: ")
    if sys.stdin.isatty() and read_passphrase("The same again: ") != passphrase:
        raise custody.PassphraseWrong("the two differ; nothing was changed")
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
        store = custody_choice.embedded(settings, site.database)
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
        # Another server has a state of its own. That of the embedded store is in the process of the running server.
        state = "refused" if status.refused else "not open" if status.sealed else "open"
        sys.stdout.write(f"state   {state}\n" + (f"next    {status.fix}\n" if status.fix else ""))
