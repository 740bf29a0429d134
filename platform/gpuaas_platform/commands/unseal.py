"""`gpuaas-platform unseal`: give a running server the passphrase of its key. `main` hands its options here.

A user who can write the data folder can act as an admin for a minute; this is audited. The passphrase is read from
standard input and sent to the server only."""

import argparse
import asyncio
import ssl
import sys

import httpx
import msgspec
from gpuaas_contract import custody as contract

from gpuaas_platform import server
from gpuaas_platform.call import Caller, system_origin
from gpuaas_platform.commands import custody as custody_command
from gpuaas_platform.custody import port as custody
from gpuaas_platform.identity import service as identity
from gpuaas_platform.identity import store as identity_store
from gpuaas_platform.kit import clock
from gpuaas_platform.kit.settings import Settings

_TOKEN_S = 60
_TIMEOUT_S = 60
_EXAMPLES = """examples:
  gpuaas-platform unseal --data ./cloud < passphrase
      open the secrets of the server on http://127.0.0.1:7070
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    style, text = argparse.RawDescriptionHelpFormatter, "open a sealed server's secrets"
    parser = commands.add_parser("unseal", help=text, epilog=_EXAMPLES, formatter_class=style)
    text = "the server to open; each has a seal of its own"
    parser.add_argument("--server", default="http://127.0.0.1:7070", help=text)
    parser.add_argument("--name", default="admin", help="admin to act as")
    return parser


def run(settings: Settings, options: argparse.Namespace) -> int:
    try:
        passphrase = custody_command.read_passphrase("Passphrase: ")
        status = asyncio.run(_unseal(settings, options, passphrase))
    except (custody.CustodyError, httpx.HTTPError) as error:
        sys.stderr.write(f"gpuaas-platform: {options.server} was not unsealed: {error}\n")
        return 2
    sys.stdout.write(f"{'still sealed' if status.sealed else 'open'}: {status.key}\n")
    return 0


async def _unseal(settings: Settings, options: argparse.Namespace, passphrase: str) -> contract.CustodyStatus:
    async with server.open_site(settings) as site:
        user = await identity_store.user_by_name(site.database.reader, options.name)
        if user is None:
            raise custody.Unavailable(f"there is no user {options.name}; name an admin: --name NAME")
        origin, caller = system_origin(clock.utc_now()), Caller("user", str(user["user_id"]), options.name)
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
