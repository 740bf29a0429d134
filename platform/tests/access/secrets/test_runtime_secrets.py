"""Runtime secrets: declared, fenced, delivered once, deleted when their time is over, and without a trace."""

import asyncio
import base64
import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import campaigns
import httpx
import pytest
import structlog
from canary import Canary
from gpuaas_contract import audit, errors, events, identity, instances, operations, runtime, secrets
from gpuaas_platform.access.secrets import reconcile as secrets_reconcile
from gpuaas_platform.custody import port as custody
from platform_world import World

OPENINGS = campaigns.size(short=100, whole=500)
CANARY = 'canary "\\ü/+ 7f3a9c51e2d84b06'


@dataclass
class Controller:
    """An app controller that holds an operation."""

    world: World
    token: str
    claim: runtime.Claim

    @property
    def operation_id(self) -> str:
        assert self.claim.operation is not None
        return self.claim.operation.operation_id

    @property
    def instance_id(self) -> str:
        assert self.claim.instance is not None
        return self.claim.instance.instance_id

    async def issue(self, name: str = "join", **options: Any) -> secrets.IssuedSecret:
        body = {"epoch": self.claim.epoch, "purpose": "role_join", "name": name, **options}
        return await self.world.call(
            secrets.SECRET_ISSUE, body, token=self.token, operation_id=self.operation_id, key=""
        )

    async def send_open(self, delivery_id: str, **options: Any) -> httpx.Response:
        body = {"operation_id": self.operation_id, "epoch": self.claim.epoch}
        return await self.world.send(
            secrets.DELIVERY_OPEN, body, token=self.token, delivery_id=delivery_id, key="", **options
        )

    async def open(self, delivery_id: str) -> secrets.OpenedDelivery:
        body = {"operation_id": self.operation_id, "epoch": self.claim.epoch}
        return await self.world.call(secrets.DELIVERY_OPEN, body, token=self.token, delivery_id=delivery_id, key="")

    async def listed(self) -> list[secrets.RuntimeSecret]:
        return (await self.world.call(secrets.SECRET_LIST, instance_id=self.instance_id)).items

    async def revoke(self, secret_id: str) -> secrets.RuntimeSecret:
        return await self.world.call(secrets.SECRET_REVOKE, instance_id=self.instance_id, secret_id=secret_id, key="")

    async def reported_events(self) -> list[str]:
        page = await self.world.call(events.EVENT_LIST, query={"app_instance_id": self.instance_id})
        return [event.type for event in page.items if event.type.startswith("access.secret.")]


@pytest.fixture
async def controller(world: World) -> Controller:
    await world.entitled_app()
    return await _controller(world, "one")


async def _controller(world: World, name: str) -> Controller:
    token = await world.service_account(f"controller-{name}")
    await world.deploy(name)
    return Controller(world, token, await world.claim(token, lease_s=15))


async def test_a_secret_given_is_the_one_that_is_opened(controller: Controller) -> None:
    issued = await controller.issue(value=CANARY)
    delivered = await controller.open(issued.delivery_id)
    assert delivered.value == CANARY
    (listed,) = await controller.listed()
    assert listed == delivered.secret
    assert (listed.version, listed.deliveries, listed.deliveries_opened) == (1, 1, 1)
    assert await controller.reported_events() == ["access.secret.issued", "access.secret.opened"]


async def test_without_a_value_the_platform_makes_one_of_32_random_bytes(controller: Controller) -> None:
    made = [(await controller.open((await controller.issue(name)).delivery_id)).value for name in ("a", "b")]
    assert len(set(made)) == 2
    assert [len(base64.urlsafe_b64decode(value + "=")) for value in made] == [32, 32]


async def test_a_repeated_request_makes_a_new_delivery_and_never_a_second_value(controller: Controller) -> None:
    issued = await asyncio.gather(*(controller.issue() for _ in range(20)))
    assert len({delivery.secret.secret_id for delivery in issued}) == 1
    assert len({delivery.delivery_id for delivery in issued}) == 20
    values = {(await controller.open(delivery.delivery_id)).value for delivery in issued}
    assert len(values) == 1
    (listed,) = await controller.listed()
    assert (listed.version, listed.deliveries, listed.deliveries_opened) == (1, 20, 20)


async def test_values_that_lost_the_race_do_not_stay_in_custody(controller: Controller) -> None:
    await asyncio.gather(*(controller.issue() for _ in range(5)))
    controller.world.clock.forward(61)
    await secrets_reconcile.sweep(controller.world.site)
    (listed,) = await controller.listed()
    assert await controller.world.kept() == [listed.secret_id]


async def test_another_value_under_the_same_name_is_refused_until_the_first_is_revoked(controller: Controller) -> None:
    first = await controller.issue(value="one")
    assert (await controller.issue(value="one")).secret.secret_id == first.secret.secret_id
    with pytest.raises(errors.Conflict, match="another value"):
        await controller.issue(value="two")
    await controller.revoke(first.secret.secret_id)
    second = await controller.issue(value="two")
    assert (second.secret.version, (await controller.open(second.delivery_id)).value) == (2, "two")


async def test_of_many_openings_at_once_exactly_one_gets_the_value(controller: Controller) -> None:
    issued = await controller.issue(value=CANARY)
    answers = await asyncio.gather(*(controller.send_open(issued.delivery_id) for _ in range(OPENINGS)))
    through = [answer for answer in answers if answer.status_code == 200]
    assert [answer.json()["value"] for answer in through] == [CANARY]
    refused = [answer.json()["code"] for answer in answers if answer.status_code != 200]
    assert refused == ["secret_already_delivered"] * (OPENINGS - 1)
    reported = await _all_events(controller)
    assert (reported.count("access.secret.opened"), reported.count("access.secret.reopened")) == (1, OPENINGS - 1)


async def test_a_second_opening_is_refused_and_in_the_audit_log(controller: Controller) -> None:
    issued = await controller.issue()
    await controller.open(issued.delivery_id)
    headers = {"X-Correlation-ID": "second-try"}
    answer = await controller.send_open(issued.delivery_id, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "secret_already_delivered")
    assert (await controller.reported_events())[-1] == "access.secret.reopened"
    rows = await controller.world.call(audit.AUDIT_LIST, query={"correlation_id": "second-try"})
    assert [(row.action, row.result) for row in rows.items] == [("access.secret.open", "failure")]


async def test_a_dry_run_of_an_opening_shows_nothing_and_uses_nothing_up(controller: Controller) -> None:
    issued = await controller.issue(value=CANARY)
    answer = await controller.send_open(issued.delivery_id, query={"dry_run": "true"})
    assert (answer.status_code, answer.json()["value"]) == (200, "")
    assert (await controller.open(issued.delivery_id)).value == CANARY


async def test_a_dry_run_of_an_issue_leaves_nothing_in_custody(controller: Controller) -> None:
    body = {"epoch": controller.claim.epoch, "purpose": "role_join", "name": "join", "value": CANARY}
    answer = await controller.world.send(
        secrets.SECRET_ISSUE,
        body,
        token=controller.token,
        operation_id=controller.operation_id,
        query={"dry_run": "true"},
    )
    assert answer.status_code == 201
    assert [*await controller.world.kept(), *await controller.listed()] == []


async def test_a_purpose_the_manifest_does_not_declare_is_refused(controller: Controller) -> None:
    with pytest.raises(errors.PurposeUndeclared, match="declared: artifact_pull, role_join"):
        await controller.issue(purpose="operator_access")
    assert await controller.listed() == []


async def test_a_controller_that_lost_the_lease_can_neither_issue_nor_open(controller: Controller) -> None:
    issued = await controller.issue(value=CANARY)
    controller.world.clock.forward(16)
    newer = Controller(controller.world, controller.token, await controller.world.claim(controller.token))
    for _ in range(3):
        with pytest.raises(errors.LeaseLost):
            await controller.open(issued.delivery_id)
        with pytest.raises(errors.LeaseLost):
            await controller.issue()
    assert (await newer.open(issued.delivery_id)).value == CANARY


async def test_another_instance_and_another_project_see_no_delivery(world: World, controller: Controller) -> None:
    issued = await controller.issue(value=CANARY)
    neighbour = await _controller(world, "two")
    with pytest.raises(errors.NotFound):
        await neighbour.open(issued.delivery_id)
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org_id)
    token = await world.service_account("sibling", sibling.project_id)
    body = {"operation_id": controller.operation_id, "epoch": controller.claim.epoch}
    for project_id in (sibling.project_id, world.project_id):
        with pytest.raises(errors.NotFound):
            await world.call(
                secrets.DELIVERY_OPEN, body, token=token, project_id=project_id, delivery_id=issued.delivery_id
            )
    assert (await controller.open(issued.delivery_id)).value == CANARY


async def test_where_an_operator_is_named_no_other_service_account_issues_or_opens(world: World) -> None:
    """Another may know every id and guess the epoch."""
    await world.entitled_app()
    operator = await world.service_account("operator")
    head, hand = await world.allocation("head"), await world.allocation("hand")
    inputs = {"head_allocation": head.allocation_id, "hand_allocations": [hand.allocation_id]}
    named = {"name": "one", "operator_service_account_id": "operator"}
    body = instances.DeployInstance(app_slug="toy", topology="pair", inputs=inputs, **named)
    await world.call(instances.INSTANCE_CREATE, body)
    holder = Controller(world, operator, await world.claim(operator))
    issued = await holder.issue(value=CANARY)
    other = Controller(world, await world.service_account("other"), holder.claim)
    with pytest.raises(errors.PermissionDenied):
        await other.open(issued.delivery_id)
    with pytest.raises(errors.PermissionDenied):
        await other.issue()
    assert (await holder.open(issued.delivery_id)).value == CANARY


async def test_people_see_that_there_is_a_secret_and_cannot_open_it(controller: Controller) -> None:
    issued = await controller.issue(value=CANARY)
    body = {"operation_id": controller.operation_id, "epoch": controller.claim.epoch}
    with pytest.raises(errors.PermissionDenied):
        await controller.world.call(secrets.DELIVERY_OPEN, body, delivery_id=issued.delivery_id)
    assert [secret.name for secret in await controller.listed()] == ["join"]


async def test_an_expired_secret_does_not_open_and_its_value_is_destroyed(controller: Controller) -> None:
    issued = await controller.issue(ttl_s=10)
    controller.world.clock.forward(10)
    with pytest.raises(errors.Conflict, match="expired"):
        await controller.open(issued.delivery_id)
    await secrets_reconcile.sweep(controller.world.site)
    await _assert_destroyed(controller, issued.secret.secret_id)
    (listed,) = await controller.listed()
    assert (listed.state, listed.ended_at) == ("expired", controller.world.clock())
    assert (await controller.reported_events())[-1] == "access.secret.expired"


async def test_a_name_is_free_again_after_expiry_also_before_the_sweep(controller: Controller) -> None:
    first = await controller.issue(value="one", ttl_s=10)
    controller.world.clock.forward(11)
    second = await controller.issue(value="two")
    await secrets_reconcile.sweep(controller.world.site)
    await _assert_destroyed(controller, first.secret.secret_id)
    assert (await controller.open(second.delivery_id)).value == "two"
    assert [(secret.version, secret.state) for secret in await controller.listed()] == [(1, "expired"), (2, "issued")]


async def test_a_revoked_secret_is_destroyed_and_revoking_again_changes_nothing(controller: Controller) -> None:
    issued = await controller.issue()
    first = await controller.revoke(issued.secret.secret_id)
    controller.world.clock.forward(5)
    assert (first.state, await controller.revoke(issued.secret.secret_id)) == ("revoked", first)
    with pytest.raises(errors.Conflict, match="revoked"):
        await controller.open(issued.delivery_id)
    await secrets_reconcile.sweep(controller.world.site)
    await _assert_destroyed(controller, issued.secret.secret_id)
    assert (await controller.reported_events())[1:] == ["access.secret.revoked"]


async def test_a_value_whose_issuer_died_on_the_way_is_taken_out_of_custody(controller: Controller) -> None:
    """The first transaction recorded that a value is about to be stored; the second never ran."""
    site, now = controller.world.site, controller.world.clock()
    await site.custody.put("sec_orphan", b"left behind")
    due_at = int(now.timestamp() * 1_000_000) + 60_000_000
    await site.database.write(
        lambda tx: tx.run("INSERT INTO secrets_due (secret_id, due_at) VALUES ('sec_orphan', $1)", due_at)
    )
    await secrets_reconcile.sweep(site)
    assert await site.custody.get("sec_orphan", 1) == b"left behind"
    controller.world.clock.forward(60)
    await secrets_reconcile.sweep(site)
    await _assert_destroyed(controller, "sec_orphan")


async def test_a_decommissioned_instance_leaves_no_secret_behind(world: World, controller: Controller) -> None:
    issued = await controller.issue(ttl_s=86_400)
    failure = runtime.FailOperation(epoch=controller.claim.epoch, code="no", message="no", failure_class="repairable")
    await world.call(runtime.FAIL, failure, token=controller.token, operation_id=controller.operation_id)
    await world.call(instances.DECOMMISSION, instances.Decommission(), instance_id=controller.instance_id)
    teardown = await world.claim(controller.token)
    for member in teardown.members:
        await world.report(controller.token, teardown, member.member_id, "removing", "removed")
    await world.complete(controller.token, teardown)
    await secrets_reconcile.end_secrets_of_deleted(world.site)
    (listed,) = await controller.listed()
    assert listed.state == "revoked"
    await secrets_reconcile.sweep(world.site)
    await _assert_destroyed(controller, issued.secret.secret_id)
    (event,) = await _revoked(world)
    assert event.payload["reason"] == "the instance was decommissioned"
    assert teardown.operation is not None
    assert event.correlation_id == teardown.operation.correlation_id


async def test_the_deletion_of_an_instance_wakes_the_loop_that_ends_its_secrets(
    world: World, controller: Controller
) -> None:
    await controller.issue(ttl_s=86_400)
    body = {"reason": "over"}
    await world.call(operations.OPERATION_FORCE_COMPLETE, body, operation_id=controller.operation_id)
    with world.site.hub.listen(secrets_reconcile.DELETED_TOPIC) as listener:
        await world.call(instances.DECOMMISSION, instances.Decommission(), instance_id=controller.instance_id)
        teardown = await world.claim(controller.token)
        assert teardown.operation is not None
        await world.call(operations.OPERATION_FORCE_COMPLETE, body, operation_id=teardown.operation.operation_id)
        assert await listener.wait(60)


async def _revoked(world: World) -> list[events.Event]:
    page = await world.call(events.EVENT_LIST, query={"limit": 500})
    return [event for event in page.items if event.type == "access.secret.revoked"]


async def test_fingerprints_distinguish_values_within_an_instance_and_never_match_across_instances(
    world: World, controller: Controller
) -> None:
    fingerprint = (await controller.issue("one", value=CANARY)).secret.fingerprint
    assert (await controller.issue("two", value=CANARY)).secret.fingerprint == fingerprint
    assert (await controller.issue("three", value="other")).secret.fingerprint != fingerprint
    neighbour = await _controller(world, "two")
    assert (await neighbour.issue(value=CANARY)).secret.fingerprint != fingerprint


async def test_the_value_is_nowhere_but_in_the_one_answer(
    request: pytest.FixtureRequest, controller: Controller, capfd: pytest.CaptureFixture[str]
) -> None:
    world, texts = controller.world, list[str]()
    world.http.event_hooks = {"response": [_noting(texts)]}
    with structlog.testing.capture_logs() as lines:
        issued = await controller.issue(value=CANARY)
        await controller.send_open(issued.delivery_id)
        await _provoke_errors(controller, issued)
        await controller.revoke(issued.secret.secret_id)
        again = await controller.issue(value=CANARY)
        await controller.issue(value=CANARY)
        await secrets_reconcile.sweep(world.site)
    world.http.event_hooks = {}
    shown = [text for text in texts if _holds(text.encode())]
    assert len(shown) == 1, "the one opening"
    assert shown[0].startswith(f'{{"delivery_id":"{issued.delivery_id}"')
    recorded = await world.http.get(
        f"/api/v1/projects/{world.project_id}/events?limit=500", headers={"Authorization": f"Bearer {world.token}"}
    )
    trail = await world.http.get(
        "/api/v1/admin/audit?page_size=500", headers={"Authorization": f"Bearer {world.token}"}
    )
    assert again.secret.secret_id in recorded.text
    assert again.secret.secret_id in trail.text
    written = "".join(capfd.readouterr())
    for name, text in {"events": recorded.text, "audit": trail.text, "logs": str(lines), "output": written}.items():
        assert not _holds(text.encode()), name
    stored = _stored(request, world)
    assert any(again.secret.secret_id.encode() in content for content in stored.values()), "looked in the wrong place"
    assert [path for path, content in stored.items() if _holds(content)] == []


async def _provoke_errors(controller: Controller, issued: secrets.IssuedSecret) -> None:
    """Cause every refusal of a request that contains the value."""
    world = controller.world
    good = {"epoch": controller.claim.epoch, "purpose": "role_join", "name": "join", "value": CANARY}
    path = secrets.SECRET_ISSUE.path.format(project_id=world.project_id, operation_id=controller.operation_id)
    for body in (
        {**good, "value": CANARY + "changed"},
        {**good, "value": CANARY + "\0"},
        {**good, "value": [CANARY]},
        {**good, "value": CANARY * 5000},
        {**good, "purpose": "operator_access"},
        {**good, "epoch": 99},
        {**good, "ttl_s": 0},
    ):
        answer = await world.http.post(path, json=body, headers={"Authorization": f"Bearer {controller.token}"})
        assert answer.is_error, body
    broken = await world.http.post(
        path, content=json.dumps(good)[:-1], headers={"Authorization": f"Bearer {controller.token}"}
    )
    assert broken.is_error
    assert (await controller.send_open(issued.delivery_id)).is_error


def _noting(texts: list[str]) -> Any:
    async def note(response: httpx.Response) -> None:
        texts.append((await response.aread()).decode())

    return note


_CANARY = Canary.of_text(CANARY, "7f3a9c51e2d84b06")


def _holds(content: bytes) -> bool:
    return _CANARY.is_in(content)


def _stored(request: pytest.FixtureRequest, world: World) -> dict[Path, bytes]:
    """All the platform has written: its data folder with database and WAL, and what PostgreSQL keeps and logs."""
    folders = [world.site.settings.data_dir]
    if world.site.settings.database_url:
        folder: Path = request.getfixturevalue("postgres_folder")
        folders += [folder / "data", folder / "log"]
    contents: dict[Path, bytes] = {}
    for path in [path for folder in folders for path in [folder, *folder.rglob("*")] if path.is_file()]:
        with contextlib.suppress(FileNotFoundError):  # PostgreSQL removes files of its own while we read
            contents[path] = path.read_bytes()
    return contents


async def test_the_search_for_the_value_finds_every_form_of_it(tmp_path: Path) -> None:
    """It checks the check of the test above."""
    for form in _CANARY.forms:
        assert _holds(b"before " + form + b" after")
    assert not _holds(b"canary")


async def _assert_destroyed(controller: Controller, secret_id: str) -> None:
    with pytest.raises(custody.SecretMissing):
        await controller.world.site.custody.get(secret_id, 1)


async def _all_events(controller: Controller) -> list[str]:
    types, after = [], 0
    while page := (await controller.world.call(events.EVENT_LIST, query={"after": after, "limit": 500})).items:
        types += [event.type for event in page]
        after = page[-1].cursor
    return types
