"""Login names and numbers of people: given once in each organisation, never to a second person."""

import asyncio
from typing import Any

import pytest
from gpuaas_contract import bindings, catalog, errors, identity, posix, users
from gpuaas_platform.identity.posix import rules, store
from gpuaas_platform.identity.posix import service as posix_service
from hypothesis import given
from hypothesis import strategies as st
from platform_world import MANIFEST, PASSWORD, World


async def grant(world: World, name: str, role: str = "project_member", **where: str) -> str:
    """Create a person if needed, give them a role over the API, and return their id."""
    made = await world.send(users.USER_CREATE, users.CreateUser(name=name, password=PASSWORD))
    user_id = made.json()["user_id"] if made.status_code == 201 else (await person(world, name)).user_id
    body = {"user_id": user_id, "role": role}
    if role == "tenant_admin":
        await world.call(bindings.ORG_BINDING_CREATE, body, **where)
    else:
        await world.call(bindings.PROJECT_BINDING_CREATE, body, **where)
    return user_id


async def person(world: World, name: str) -> users.User:
    return await world.call(users.USER_GET, user_id=name)


async def org_of(world: World) -> str:
    return (await world.call(identity.PROJECT_GET)).org_id


async def identity_of(world: World, user_id: str, org_id: str = "") -> posix.PosixIdentity:
    present = await posix_service.identity_of(world.site.database.reader, org_id or await org_of(world), user_id)
    assert present is not None
    return present


async def set_identity(world: World, name: str, **body: Any) -> posix.PosixIdentity:
    return await world.call(posix.POSIX_IDENTITY_SET, {"user_id": name, **body}, org_id=await org_of(world))


async def test_a_person_gets_a_login_and_a_number_with_their_first_role(world: World) -> None:
    ada = await identity_of(world, await grant(world, "ada"))
    bea = await identity_of(world, await grant(world, "bea", "viewer"))
    assert (ada.login, bea.login) == ("ada", "bea")
    assert ada.uid == ada.gid >= 20_000
    assert bea.uid == ada.uid + 1


async def test_numbers_given_at_the_same_time_are_never_the_same(world: World) -> None:
    made = await asyncio.gather(*(grant(world, f"person-{number}") for number in range(12)))
    given = [await identity_of(world, user_id) for user_id in made]
    assert len({person.uid for person in given}) == len({person.login for person in given}) == 12


async def test_two_names_with_the_same_login_get_two_logins(world: World) -> None:
    first = await identity_of(world, await grant(world, "Ada.L@example.org"))
    other = await identity_of(world, await grant(world, "ada+l"))
    third = await identity_of(world, await grant(world, "ADA-L"))
    assert [first.login, other.login, third.login] == ["ada-l", "ada-l2", "ada-l3"]


async def test_a_person_in_two_organisations_has_two_identities(world: World) -> None:
    other_org = (await world.call(identity.ORG_CREATE, {"name": "other"})).org_id
    user_id = await grant(world, "ada")
    await grant(world, "ada", "tenant_admin", org_id=other_org)
    here, there = await identity_of(world, user_id), await identity_of(world, user_id, other_org)
    assert here.org_id != there.org_id
    assert here.login == there.login == "ada"


async def test_no_person_gets_the_name_of_a_system_account_or_of_an_apps_account(world: World) -> None:
    await world.entitled_app(system_users=["toyd"])
    logins = [(await identity_of(world, await grant(world, name))).login for name in ("root", "mysql", "toyd", "toy")]
    assert logins == ["root2", "mysql2", "toyd2", "toy2"]


async def test_a_version_that_is_only_registered_takes_no_login_name(world: World) -> None:
    await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "system_users": ["ada", "bea"]})
    assert (await identity_of(world, await grant(world, "ada"))).login == "ada"
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="toy", version="1.0.0")
    assert (await identity_of(world, await grant(world, "bea"))).login == "bea2"


async def test_a_person_who_leaves_and_returns_has_the_same_number(world: World) -> None:
    user_id = await grant(world, "ada")
    before = await identity_of(world, user_id)
    role = next(item for item in (await world.call(bindings.PROJECT_BINDING_LIST)).items if item.user_id == user_id)
    await world.call(bindings.PROJECT_BINDING_DELETE, binding_id=role.binding_id)
    await grant(world, "bea")
    await world.call(bindings.PROJECT_BINDING_CREATE, {"user_id": user_id, "role": "project_admin"})
    assert await identity_of(world, user_id) == before


async def test_an_admin_sets_login_and_number_of_a_person_who_has_none(world: World) -> None:
    await world.call(users.USER_CREATE, users.CreateUser(name="ada", password=PASSWORD))
    preset = await set_identity(world, "ada", login="alovelace", uid=20_001)
    assert await set_identity(world, "ada", login="alovelace", uid=20_001) == preset
    user_id = await grant(world, "ada")
    assert await identity_of(world, user_id) == preset
    given = [(await identity_of(world, await grant(world, name))).uid for name in ("bea", "cyd")]
    assert 20_001 not in given


async def test_a_login_and_a_number_are_set_once_and_for_one_person(world: World) -> None:
    ada = await identity_of(world, await grant(world, "ada"))
    await world.call(users.USER_CREATE, users.CreateUser(name="bea", password=PASSWORD))
    with pytest.raises(errors.Conflict, match="never change"):
        await set_identity(world, "ada", login="other", uid=30_000)
    with pytest.raises(errors.Conflict, match="login ada belongs to another"):
        await set_identity(world, "bea", login="ada", uid=30_000)
    with pytest.raises(errors.Conflict, match=f"number {ada.uid} belongs to another"):
        await set_identity(world, "bea", login="bea", uid=ada.uid)
    with pytest.raises(errors.ValidationFailed, match="system account"):
        await set_identity(world, "bea", login="root", uid=30_000)
    for uid in (0, 999, 65_534):
        with pytest.raises(errors.ValidationFailed):
            await set_identity(world, "bea", login="bea", uid=uid)


async def test_people_of_earlier_releases_get_their_identity_from_the_loop(world: World) -> None:
    ada = await world.person("ada", "project_member", world.project_id)
    assert await posix_service.identity_of(world.site.database.reader, await org_of(world), ada.user_id) is None
    await world.sweep_people()
    assert (await identity_of(world, ada.user_id)).login == "ada"


async def test_numbers_of_the_time_after_the_backup_are_not_given_again(world: World) -> None:
    before = await identity_of(world, await grant(world, "ada"))
    await world.site.database.write(posix_service.skip_after_restore)
    after = await identity_of(world, await grant(world, "bea"))
    assert after.uid > before.uid + 100


def test_an_exhausted_range_is_named() -> None:
    with pytest.raises(errors.Conflict, match="up to 3"):
        rules.free_uid(2, {2, 3}, 3)


async def test_when_all_numbers_are_used_an_admin_sets_one_and_the_person_gets_their_role(world: World) -> None:
    org_id, after_last = await org_of(world), world.site.settings.posix_uid_last + 1
    await world.site.database.write(lambda tx: store.set_next_uid(tx, org_id, after_last))
    with pytest.raises(errors.Conflict, match="All user numbers") as refusal:
        await grant(world, "ada")
    assert "gpuaas people set" in refusal.value.fix
    await set_identity(world, "ada", login="ada", uid=70_000)
    assert (await identity_of(world, await grant(world, "ada"))).uid == 70_000


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,62}", fullmatch=True), st.integers(0, 30))
def test_every_name_becomes_a_valid_free_login(name: str, attempts: int) -> None:
    taken: set[str] = set()
    for _ in range(attempts):
        taken.add(rules.free_login(name, taken.__contains__))
    login = rules.free_login(name, taken.__contains__)
    assert len(taken) == attempts
    assert login not in taken
    assert not rules.is_system(login)
    assert len(login) <= posix.LOGIN_LENGTH_MAX
    assert login[0].isalpha()
    assert set(login) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
