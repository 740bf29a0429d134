"""Sign-in through an identity provider, against a real one on loopback."""

import asyncio
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import oidc_provider
import pytest
from gpuaas_contract import errors, identity, sessions, users
from gpuaas_platform import server
from gpuaas_platform.kit import ids, openid
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import refusals
from platform_world import FakeClock, World

CALLBACK = "http://127.0.0.1:9/callback"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with oidc_provider.running() as url:
        yield url


@pytest.fixture
def settings(tmp_path: Path, database_url: str, issuer: str) -> Settings:
    secret_file = tmp_path / "client-secret"
    secret_file.write_text("the client's secret\n")
    return Settings(
        data_dir=tmp_path / "data",
        database_url=database_url,
        oidc_issuer=issuer,
        oidc_client_id="gpuaas",
        oidc_client_secret_file=secret_file,
        oidc_redirect_url=CALLBACK,
    )


@pytest.fixture
def clock() -> FakeClock:
    """Start at the real time, because the provider uses the real time."""
    fake = FakeClock()
    fake.now = datetime.datetime.now(datetime.UTC)
    return fake


async def begin(world: World, subject: str) -> dict[str, str]:
    start = await world.call(sessions.OIDC_AUTHORIZE, token="")
    return oidc_provider.sign_in(start.authorization_url, subject)


async def sign_in(world: World, subject: str) -> identity.Me:
    token = await world.call(sessions.OIDC_EXCHANGE, await begin(world, subject), token="")
    return await world.call(identity.ME, token=token.access_token)


async def test_the_first_sign_in_makes_a_person_without_any_role(world: World, issuer: str) -> None:
    subject = oidc_provider.fresh_subject()
    oidc_provider.tell(issuer, "PUT", f"/users/{subject}", {"preferred_username": "ada", "email": "ada@example.test"})
    me = await sign_in(world, subject)
    assert (me.actor_type, me.name, me.bindings) == ("user", "ada", [])
    shown = await world.call(users.USER_GET, user_id=me.actor_id)
    assert (shown.external_id, shown.issuer, shown.has_password) == (f"oidc:{subject}", issuer, False)


async def test_a_public_client_needs_no_secret(world: World, issuer: str) -> None:
    object.__setattr__(world.site, "openid", openid.Provider(issuer, "gpuaas", "", CALLBACK))
    assert (await sign_in(world, oidc_provider.fresh_subject())).actor_type == "user"


async def test_the_next_sign_in_is_the_same_person(world: World) -> None:
    subject = oidc_provider.fresh_subject()
    first, again = await sign_in(world, subject), await sign_in(world, subject)
    assert first.actor_id == again.actor_id
    assert first.session_id != again.session_id


async def test_a_name_that_is_taken_gets_a_number(world: World, issuer: str) -> None:
    names = []
    for _ in range(2):
        subject = oidc_provider.fresh_subject()
        oidc_provider.tell(issuer, "PUT", f"/users/{subject}", {"preferred_username": "admin"})
        names.append((await sign_in(world, subject)).name)
    assert names == ["admin-2", "admin-3"]


async def test_a_user_without_a_password_cannot_sign_in_with_an_empty_one(world: World) -> None:
    me = await sign_in(world, oidc_provider.fresh_subject())
    answer = await world.send(identity.LOGIN, {"name": me.name, "password": ""})
    assert answer.json()["code"] == "credentials_invalid"


async def test_what_is_sent_to_the_browser_asks_for_a_code_with_pkce(world: World, issuer: str) -> None:
    start = await world.call(sessions.OIDC_AUTHORIZE, token="")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(start.authorization_url).query).items()}
    assert start.authorization_url.startswith(f"{issuer}/")
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == CALLBACK
    assert asked["state"] == start.state
    assert len(asked["nonce"]) >= 40


async def test_the_state_is_kept_as_a_digest_only(world: World) -> None:
    start = await world.call(sessions.OIDC_AUTHORIZE, token="")
    rows = await world.site.database.reader.all("SELECT state_digest FROM oidc_sign_ins")
    assert [row[0] for row in rows] == [ids.digest(start.state)]


async def test_sign_ins_that_were_not_finished_in_time_are_deleted(world: World) -> None:
    for _ in range(3):
        await world.call(sessions.OIDC_AUTHORIZE, token="")
    world.clock.forward(601)
    start = await world.call(sessions.OIDC_AUTHORIZE, token="")
    await server.forget_old_rows(world.site)
    rows = await world.site.database.reader.all("SELECT state_digest FROM oidc_sign_ins")
    assert [row[0] for row in rows] == [ids.digest(start.state)]


async def test_a_wrong_state_is_refused_and_audited(world: World) -> None:
    back = await begin(world, oidc_provider.fresh_subject())
    answer = await world.send(sessions.OIDC_EXCHANGE, {**back, "state": "made-up"}, token="")
    assert (answer.status_code, answer.json()["code"]) == (401, "sign_in_refused")
    await refusals.flush(world.site)
    rows = await world.site.database.reader.all("SELECT document FROM audit WHERE document LIKE '%auth.oidc.exchange%'")
    assert len(rows) == 1


async def test_a_state_works_once(world: World) -> None:
    back = await begin(world, oidc_provider.fresh_subject())
    await world.call(sessions.OIDC_EXCHANGE, back, token="")
    with pytest.raises(errors.SignInRefused):
        await world.call(sessions.OIDC_EXCHANGE, back, token="")


async def test_a_dry_run_leaves_the_code_to_the_real_call(world: World) -> None:
    back = await begin(world, oidc_provider.fresh_subject())
    rehearsed = await world.call(sessions.OIDC_EXCHANGE, back, token="", query={"dry_run": "true"})
    assert (rehearsed.access_token, rehearsed.expires_in_s) == ("", world.site.settings.session_ttl_s)
    token = await world.call(sessions.OIDC_EXCHANGE, back, token="")
    assert (await world.call(identity.ME, token=token.access_token)).actor_type == "user"


async def test_a_dry_run_of_a_sign_in_that_was_not_begun_is_refused(world: World) -> None:
    answer = await world.send(sessions.OIDC_EXCHANGE, {"code": "x", "state": "y"}, token="", query={"dry_run": "true"})
    assert (answer.status_code, answer.json()["code"]) == (401, "sign_in_refused")


async def test_a_state_is_used_up_by_a_wrong_code_too(world: World) -> None:
    back = await begin(world, oidc_provider.fresh_subject())
    for code in ("wrong", back["code"]):
        with pytest.raises(errors.SignInRefused):
            await world.call(sessions.OIDC_EXCHANGE, {"state": back["state"], "code": code}, token="")


async def test_a_sign_in_older_than_ten_minutes_is_refused(world: World) -> None:
    back = await begin(world, oidc_provider.fresh_subject())
    world.clock.forward(601)
    with pytest.raises(errors.SignInRefused):
        await world.call(sessions.OIDC_EXCHANGE, back, token="")


async def test_a_code_of_another_sign_in_does_not_fit_the_verifier(world: World) -> None:
    mine, stolen = (
        await begin(world, oidc_provider.fresh_subject()),
        await begin(world, oidc_provider.fresh_subject()),
    )
    with pytest.raises(errors.SignInRefused, match="invalid_grant"):
        await world.call(sessions.OIDC_EXCHANGE, {"code": stolen["code"], "state": mine["state"]}, token="")


async def test_every_kind_of_invalid_id_token_is_refused(world: World, issuer: str) -> None:
    for how in oidc_provider.MISCHIEF:
        back = await begin(world, oidc_provider.fresh_subject())
        oidc_provider.tell(issuer, "POST", f"/mischief/{how}")
        answer = await world.send(sessions.OIDC_EXCHANGE, back, token="")
        assert (how, answer.json()["code"]) == (how, "sign_in_refused")
        assert "ID token is not valid" in answer.json()["message"]
    shown = (await world.call(users.USER_LIST)).items
    assert [user.name for user in shown] == ["admin"]


async def test_the_provider_may_rotate_its_keys(world: World, issuer: str) -> None:
    await sign_in(world, oidc_provider.fresh_subject())
    oidc_provider.tell(issuer, "POST", "/rotate")
    assert (await sign_in(world, oidc_provider.fresh_subject())).actor_type == "user"


async def test_a_disabled_person_cannot_sign_in_through_the_provider(world: World) -> None:
    subject = oidc_provider.fresh_subject()
    me = await sign_in(world, subject)
    await world.call(users.USER_DISABLE, user_id=me.actor_id)
    with pytest.raises(errors.SignInRefused):
        await sign_in(world, subject)


async def test_without_a_provider_the_answer_names_the_missing_option(world: World) -> None:
    object.__setattr__(world.site, "openid", None)
    for answer in (
        await world.send(sessions.OIDC_AUTHORIZE, token=""),
        await world.send(sessions.OIDC_EXCHANGE, {"code": "x", "state": "y"}, token=""),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "oidc_not_configured")
        assert "--oidc-issuer" in answer.json()["fix"]


async def test_a_provider_that_refuses_in_another_form_than_providers_do_is_unavailable() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        status, document = ("400 Bad Request", ["no"]) if asked == "/token" else ("200 OK", metadata)
        content = json.dumps(document)
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        endpoints = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
        metadata = {"issuer": url, **{name: url + path for name, path in endpoints.items()}}
        provider = openid.Provider(url, "gpuaas", "", CALLBACK)
        with pytest.raises(openid.Unreachable, match="/token answered 400"):
            await provider.finish("code", "verifier", "nonce", datetime.datetime.now(datetime.UTC))


async def test_a_provider_that_does_not_answer_is_unavailable_and_not_an_internal_error(world: World) -> None:
    provider = world.site.openid
    assert provider is not None
    provider.issuer = "http://127.0.0.1:9"
    answer = await world.send(sessions.OIDC_AUTHORIZE, token="")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
