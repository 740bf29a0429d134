"""Ways to sign in: with a password, a service account's key, or an identity provider in a browser."""

from urllib.parse import parse_qs, urlsplit

import msgspec
from gpuaas_contract.identity import LOGIN, SERVICE_ACCOUNT_TOKEN, Login, ServiceAccountLogin, Token
from gpuaas_contract.sessions import OIDC_AUTHORIZE, OIDC_EXCHANGE, OidcExchange
from gpuaas_sdk.client import Client

from gpuaas_cli import failures, output
from gpuaas_cli.client.session import CHANGE_S, Prove
from gpuaas_cli.flags import Flags
from gpuaas_cli.input import ask, files

BROWSER = "gpuaas login --browser"


def by_password(name: str, password: str) -> Prove:
    return lambda client: client.call(LOGIN, Login(name=name, password=password), timeout_s=CHANGE_S)


def by_key_file(path: str) -> Prove:
    try:
        body = msgspec.json.decode(files.text(path), type=ServiceAccountLogin)
    except msgspec.DecodeError as error:
        message, fix = f"{path} holds no key of a service account", "gpuaas service-account key NAME --key-file FILE"
        raise failures.usage(f"{message}: {error}", fix) from error
    return lambda client: client.call(SERVICE_ACCOUNT_TOKEN, body, timeout_s=CHANGE_S)


async def by_browser(flags: Flags, client: Client) -> Token:
    """Sign in with a browser. The provider redirects it to the platform, so the user pastes the final address here."""
    start = await client.call(OIDC_AUTHORIZE, timeout_s=CHANGE_S)
    output.talk(f"Open this address and sign in:\n\n  {start.authorization_url}\n")
    body = returned(
        ask.line(flags, "Paste the address that the browser shows after you signed in", BROWSER), start.state
    )
    return await client.call(OIDC_EXCHANGE, body, timeout_s=CHANGE_S)


def returned(address: str, state: str) -> OidcExchange:
    """Pure: return the code in the pasted address; refuse an address with the state of another sign-in."""
    result = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    if "error" in result:
        why = result.get("error_description", result["error"])
        raise failures.Failure(f"The provider refused: {why}", fix=BROWSER, code=result["error"])
    if "code" not in result or "state" not in result:
        raise failures.usage("The address contains no code and no state; paste the whole address", BROWSER)
    if result["state"] != state:
        raise failures.Failure("This address belongs to another sign-in", fix=BROWSER, code="sign_in_refused")
    return OidcExchange(code=result["code"], state=state)
