"""Sign in, sign out, and who you are.

gpuaas login --server http://127.0.0.1:7070 --name admin
gpuaas login --server https://gpuaas.example.com --browser
    Sign in. The password is asked for, or read from stdin; never give it on the command line.
    --name: Your user name on the server.
    --browser: Sign in through the server's identity provider.
    --key-file FILE: Sign in as a service account with the key in this file; - is stdin.
gpuaas logout --context prod
    Sign out: end the session on the server and delete its token here, for the current context or the one in --context.
gpuaas whoami -o json
    Show who you are signed in as, and your roles.
"""

import asyncio
import os

from gpuaas_contract import identity, sessions
from gpuaas_contract.errors import ApiError
from gpuaas_sdk.outcomes import NoAnswer

from gpuaas_cli import failures, output
from gpuaas_cli.client import home, network, session, sign_in
from gpuaas_cli.flags import Flags
from gpuaas_cli.input import ask
from gpuaas_cli.output import table
from gpuaas_cli.runner import SWITCH, Call, Command


def _login(call: Call) -> None:
    if sum(map(bool, call.values.values())) > 1:
        raise failures.usage("--name, --browser and --key-file exclude each other", "gpuaas login --help")
    folder, name = home.folder(os.environ), call["name"]
    target = _target(call.flags, home.load(folder))
    network.require(target.server)
    result = asyncio.run(session.sign_in(target, _proof(call)))
    home.set_context(folder, target.context, result)
    output.talk(f"Signed in to {result.server}{f' as {name}' if name else ''} (context {target.context}).")
    if not result.project_id:
        output.talk("  next: gpuaas project use NAME, or gpuaas project create NAME --org ORG")


def _target(flags: Flags, config: home.Config) -> home.Target:
    context_name = home.chosen(flags, os.environ, config) or "default"
    known = config.contexts.get(context_name)
    server = flags.server or os.environ.get("GPUAAS_SERVER", "") or (known.server if known else "")
    if not server:
        raise failures.usage("No server was named", "gpuaas login --server http://127.0.0.1:7070 --name admin")
    ca_file = flags.ca_file or (known.ca_file if known else "")
    return home.Target(context_name, server.rstrip("/"), ca_file=ca_file)


def _proof(call: Call) -> session.Prove:
    if call["browser"]:
        return lambda client: sign_in.by_browser(call.flags, client)
    if call["key_file"]:
        return sign_in.by_key_file(call["key_file"])
    name = call["name"] or ask.name(call.flags, "gpuaas login")
    return sign_in.by_password(name, ask.secret(call.flags, f"Password of {name}", "gpuaas login"))


def _logout(call: Call) -> None:
    folder = home.folder(os.environ)
    config = home.load(folder)
    name = home.resolve(call.flags, os.environ, config).context
    known = config.contexts.get(name)
    if known is None or not known.token:
        output.talk("You were not signed in.")
        return
    trouble = asyncio.run(_end(home.Target(name, known.server, known.token, ca_file=known.ca_file)))
    home.change_context(folder, name, token="")
    output.talk(f"Signed out of {known.server} (context {name}).")
    if trouble:
        output.talk(f"The token is forgotten here, but the session may live on at the server: {trouble}")


async def _end(target: home.Target) -> str:
    """End the session at the server. Return why the token may still be valid; empty if it is not."""
    try:
        async with session.make_client(target) as client:
            await client.call(sessions.LOGOUT, timeout_s=session.READ_S)
    except ApiError as error:
        return "" if error.status == 401 else error.message
    except (NoAnswer, failures.Failure) as error:
        return error.message
    return ""


def _where(call: Call, _: identity.Me) -> None:
    target = call.session.target
    output.talk(f"context {target.context or '-'}, server {target.server}, project {target.project or '-'}")


COMMANDS = {
    "login": Command(
        calls=(identity.LOGIN, identity.SERVICE_ACCOUNT_TOKEN, sessions.OIDC_AUTHORIZE, sessions.OIDC_EXCHANGE),
        extra={"browser": SWITCH},
        offline=_login,
    ),
    "logout": Command(calls=(sessions.LOGOUT,), offline=_logout),
    "whoami": Command(
        identity.ME,
        table=table(
            "NAME TYPE=actor_type ID=actor_id ROLES",
            ROLES=lambda me: ",".join(f"{binding.role}@{binding.scope}" for binding in me.bindings),
        ),
        then=_where,
    ),
}
