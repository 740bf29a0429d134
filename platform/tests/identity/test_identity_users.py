"""People, their passwords and their sessions."""

import asyncio
import hashlib
from typing import Any

import pytest
from gpuaas_contract import errors, identity, sessions, users
from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.identity import service as identity_service
from gpuaas_platform.identity.users import passwords
from gpuaas_platform.kit import ids
from platform_world import PASSWORD, World

OTHER = "another long enough password"


async def test_a_new_person_can_sign_in_and_has_no_role(world: World) -> None:
    ada = await world.person("ada")
    me = await world.call(identity.ME, token=ada.token)
    assert (me.name, me.actor_id, me.bindings) == ("ada", ada.user_id, [])
    assert (await world.call(identity.ORG_LIST, token=ada.token)).items == []


async def test_who_am_i_shows_when_the_session_ends(world: World) -> None:
    me = await world.call(identity.ME)
    assert me.session_expires_at is not None
    assert (me.session_expires_at - world.clock()).total_seconds() == world.site.settings.session_ttl_s


async def test_a_person_without_a_password_cannot_sign_in_until_one_is_set(world: World) -> None:
    made = await world.call(users.USER_CREATE, {"name": "ada"})
    assert not made.has_password
    for password in ("", PASSWORD, "the password of no user"):
        with pytest.raises(errors.CredentialsInvalid):
            await world.sign_in("ada", password)
    shown = await world.call(users.USER_SET_PASSWORD, {"password": PASSWORD}, user_id=made.user_id)
    assert shown.has_password
    assert await world.sign_in("ada")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "a b"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "-ada"}, "name"),
        ({"name": "ada", "password": "short"}, "password"),
    ],
)
async def test_an_invalid_field_of_a_new_person_is_named(world: World, body: dict[str, Any], field: str) -> None:
    answer = await world.send(users.USER_CREATE, body)
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, field)


async def test_a_name_is_given_once(world: World) -> None:
    with pytest.raises(errors.Conflict):
        await world.call(users.USER_CREATE, {"name": "admin"})


async def test_a_repeated_creation_makes_one_person_and_keeps_no_trace_of_the_password(world: World) -> None:
    body = {"name": "ada", "password": PASSWORD}
    first = await world.send(users.USER_CREATE, body, key="k1")
    again = await world.send(users.USER_CREATE, body, key="k1")
    assert (first.status_code, again.content) == (201, first.content)
    other = await world.send(users.USER_CREATE, {**body, "password": OTHER}, key="k1")
    assert other.json()["code"] == "idempotency_key_reused"
    rows = await world.site.database.reader.all("SELECT request_digest, answer FROM idempotency")
    kept = "".join(f"{row[0]} {row[1]}" for row in rows)
    path_and_body = users.USER_CREATE.path.encode() + b"\n" + first.request.content
    assert hashlib.sha256(path_and_body).hexdigest() not in kept
    assert PASSWORD not in kept


async def test_no_password_reaches_the_audit_trail_or_an_answer(world: World) -> None:
    ada = await world.person("ada")
    answers = [
        await world.send(users.USER_SET_PASSWORD, {"password": OTHER}, user_id=ada.user_id),
        await world.send(users.USER_GET, user_id=ada.user_id),
        await world.send(users.USER_LIST),
    ]
    rows = await world.site.database.reader.all("SELECT document FROM audit")
    text = "".join([*(answer.text for answer in answers), *(row[0] for row in rows)])
    assert PASSWORD not in text
    assert OTHER not in text
    assert "argon2" not in text


async def test_disabling_ends_every_session_at_once_and_enabling_brings_none_back(world: World) -> None:
    ada = await world.person("ada")
    second = await world.sign_in("ada")
    assert (await world.call(users.USER_DISABLE, user_id=ada.user_id)).state == "disabled"
    for token in (ada.token, second):
        assert (await world.send(identity.ME, token=token)).status_code == 401
    with pytest.raises(errors.CredentialsInvalid):
        await world.sign_in("ada")
    assert (await world.call(users.USER_ENABLE, user_id=ada.user_id)).state == "active"
    assert (await world.send(identity.ME, token=ada.token)).status_code == 401
    assert await world.sign_in("ada")


async def test_a_token_of_a_disabled_person_is_invalid(world: World) -> None:
    ada = await world.person("ada")
    await world.site.database.write(lambda tx: tx.run("UPDATE users SET state = 'disabled' WHERE name = 'ada'"))
    assert (await world.send(identity.ME, token=ada.token)).json()["code"] == "token_invalid"


async def test_the_last_platform_admin_cannot_be_disabled(world: World) -> None:
    me = await world.call(identity.ME)
    with pytest.raises(errors.Conflict, match="last platform admin"):
        await world.call(users.USER_DISABLE, user_id=me.actor_id)
    await world.person("second", "platform_admin", "platform")
    assert (await world.call(users.USER_DISABLE, user_id=me.actor_id)).state == "disabled"


async def test_of_processes_that_start_at_once_one_makes_the_first_admin(site: Site) -> None:
    origin = system_origin(site.clock())
    made = await asyncio.gather(
        *(identity_service.make_first_admin(site, origin, "admin", password) for password in (PASSWORD, OTHER))
    )
    assert sorted(made) == [False, True]
    [row] = await site.database.reader.all("SELECT password_hash FROM users WHERE name = 'admin'")
    assert passwords.hasher.verify(row[0], PASSWORD if made[0] else OTHER)


async def test_the_owner_of_the_data_folder_recovers_a_disabled_admin(world: World) -> None:
    me = await world.call(identity.ME)
    await world.person("second", "platform_admin", "platform")
    await world.call(users.USER_DISABLE, user_id=me.actor_id)
    origin = system_origin(world.clock())
    await identity_service.set_password(world.site, origin, "admin", OTHER, "platform_admin")
    token = await world.sign_in("admin", OTHER)
    assert (await world.call(identity.ME, token=token)).actor_id == me.actor_id


async def test_a_password_set_by_an_admin_ends_the_old_one_and_every_session(world: World) -> None:
    ada = await world.person("ada")
    await world.call(users.USER_SET_PASSWORD, {"password": OTHER}, user_id=ada.user_id)
    assert (await world.send(identity.ME, token=ada.token)).status_code == 401
    with pytest.raises(errors.CredentialsInvalid):
        await world.sign_in("ada")
    assert await world.sign_in("ada", OTHER)


async def test_changing_ones_own_password_needs_the_present_one_and_keeps_this_session_only(world: World) -> None:
    ada = await world.person("ada")
    second = await world.sign_in("ada")
    wrong = {"present_password": "not this one", "new_password": OTHER}
    assert (await world.send(users.MY_PASSWORD, wrong, token=ada.token)).json()["code"] == "credentials_invalid"
    await world.call(users.MY_PASSWORD, {"present_password": PASSWORD, "new_password": OTHER}, token=ada.token)
    assert (await world.send(identity.ME, token=ada.token)).status_code == 200
    assert (await world.send(identity.ME, token=second)).status_code == 401
    assert await world.sign_in("ada", OTHER)


async def test_a_password_change_whose_answer_was_lost_is_repeated_without_harm(world: World) -> None:
    ada = await world.person("ada")
    body = {"present_password": PASSWORD, "new_password": OTHER}
    first = await world.send(users.MY_PASSWORD, body, token=ada.token, key="change-1")
    again = await world.send(users.MY_PASSWORD, body, token=ada.token, key="change-1")
    assert (again.status_code, again.content) == (first.status_code, first.content) == (200, first.content)
    other = await world.send(users.MY_PASSWORD, body, token=ada.token, key="change-2")
    assert other.json()["code"] == "credentials_invalid"


async def test_a_service_account_has_no_password_to_change(world: World) -> None:
    token = await world.service_account()
    body = {"present_password": PASSWORD, "new_password": OTHER}
    assert (await world.send(users.MY_PASSWORD, body, token=token)).status_code == 409


async def test_only_roles_of_the_platform_see_people(world: World) -> None:
    org = (await world.call(identity.ORG_LIST)).items[0]
    tenant = await world.person("tenant", "tenant_admin", org.org_id)
    operator = await world.person("operator", "platform_ops", "platform")
    assert (await world.send(users.USER_LIST, token=tenant.token)).status_code == 404
    assert (await world.send(users.USER_LIST, token=operator.token)).status_code == 200
    denied = await world.send(users.USER_DISABLE, token=operator.token, user_id=tenant.user_id)
    assert (denied.status_code, denied.json()["details"]["permission"]) == (403, "identity.user.change")


async def test_pages_of_people_show_each_person_once(world: World) -> None:
    for number in range(4):
        await world.call(users.USER_CREATE, {"name": f"person-{number}"})
    seen, token = [], ""
    while True:
        page = await world.call(users.USER_LIST, query={"page_size": 2, "page_token": token})
        seen += [user.name for user in page.items]
        if page.next_page_token is None:
            break
        token = page.next_page_token
    assert sorted(seen) == ["admin", *(f"person-{number}" for number in range(4))]


async def test_sessions_are_listed_and_ended_by_an_id_that_opens_nothing(world: World) -> None:
    ada = await world.person("ada")
    second = await world.sign_in("ada")
    listed = (await world.call(sessions.SESSION_LIST, token=ada.token)).items
    assert [session.current for session in listed] == [True, False]
    for session in listed:
        assert session.session_id not in (ids.digest(ada.token), ids.digest(second))
        assert (await world.send(identity.ME, token=session.session_id)).status_code == 401
    ended = await world.call(sessions.SESSION_END, token=ada.token, session_id=listed[1].session_id)
    assert not ended.current
    assert (await world.send(identity.ME, token=second)).status_code == 401
    assert len((await world.call(sessions.SESSION_LIST, token=ada.token)).items) == 1


async def test_a_user_cannot_end_the_sessions_of_others(world: World) -> None:
    ada = await world.person("ada")
    mine = (await world.call(identity.ME)).session_id
    assert (await world.send(sessions.SESSION_END, token=ada.token, session_id=mine)).status_code == 404
    assert (await world.send(identity.ME)).status_code == 200


async def test_logging_out_ends_the_calling_token(world: World) -> None:
    ada = await world.person("ada")
    assert (await world.call(sessions.LOGOUT, token=ada.token)).current
    assert (await world.send(identity.ME, token=ada.token)).status_code == 401


async def test_an_expired_session_is_not_listed(world: World) -> None:
    await world.sign_in("admin")
    world.clock.forward(world.site.settings.session_ttl_s)
    token = await world.sign_in("admin")
    assert len((await world.call(sessions.SESSION_LIST, token=token)).items) == 1


async def test_guesses_sent_at_once_are_counted_too(world: World) -> None:
    body = {"name": "admin", "password": "a wrong password"}
    answers = await asyncio.gather(*(world.send(identity.LOGIN, body) for _ in range(30)))
    tried = [answer for answer in answers if answer.status_code == 401]
    assert 5 <= len(tried) <= 6
    assert len(answers) - len(tried) == sum(answer.status_code == 429 for answer in answers)


async def test_guessing_the_present_password_is_as_slow_as_signing_in(world: World) -> None:
    body = {"present_password": "a wrong password", "new_password": OTHER}
    codes = [(await world.send(users.MY_PASSWORD, body)).status_code for _ in range(6)]
    assert codes == [401, 401, 401, 401, 401, 429]
