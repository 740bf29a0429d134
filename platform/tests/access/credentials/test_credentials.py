"""Access credentials: customers' keys go into custody, reach a controller sealed and once, and end when revoked."""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import asyncssh
import campaigns
import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from gpuaas_contract import audit, credentials, errors, events, identity
from gpuaas_platform.access.secrets import reconcile as secrets_reconcile
from gpuaas_platform.custody import port as custody
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.sealed import Recipient
from platform_world import World, ssh_private_key
from scripted_controller import Held

DELIVERIES = campaigns.size(short=100, whole=500)
PROTECTED = """-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABC3L7Xp7R
JZTqFc7lAEdBGiAAAAEAAAAAEAAAAzAAAAC3NzaC1lZDI1NTE5AAAAIAQn/O0Woaiz7RdG
7mO4ArW+2nHwmaWk7qSMJTKK5WTPAAAAkJsOtVlXNRxZKekGcR6F99AsYH1zVJX7j10fC9
JT8IzNVRXp3WKcNi2P2FcEhQfLnGFe07qTPl/qMCrbJajvNcTltzMfVTyNQburacAVgc3j
mNMRVlAshLWpVpwhAuMQPn0YUqjELYHXUKv2p5lC22utyzOoVBHikhCjjQSB/1egmJ5+bm
4EZEt51Y0PT70uPQ==
-----END OPENSSH PRIVATE KEY-----
"""
"""Made by ssh-keygen with a passphrase; no machine accepts it."""


@dataclass
class Customer:
    """A project with a credential, and a controller whose instance was given it."""

    world: World
    key: str
    credential: credentials.Credential
    held: Held

    async def send(self, endpoint: Any, body: Any = None, **options: Any) -> httpx.Response:
        return await self.world.send(endpoint, body, credential_id=self.credential.credential_id, key="", **options)

    async def deliver(self, recipient: Recipient, credential_id: str = "") -> credentials.CredentialDelivery:
        body = {
            "credential_id": credential_id or self.credential.credential_id,
            "recipient_key": recipient.public_key,
        }
        return await self.held.send(credentials.CREDENTIAL_DELIVER, body)

    async def send_open(self, delivery_id: str, **options: Any) -> httpx.Response:
        body = {"operation_id": self.held.operation_id, "epoch": self.held.claim.epoch}
        return await self.world.send(
            credentials.CREDENTIAL_OPEN, body, token=self.held.token, delivery_id=delivery_id, key="", **options
        )

    async def open(self, delivery_id: str) -> credentials.OpenedCredential:
        body = {"operation_id": self.held.operation_id}
        return await self.held.send(credentials.CREDENTIAL_OPEN, body, delivery_id=delivery_id)

    async def present(self) -> credentials.Credential:
        return await self.world.call(credentials.CREDENTIAL_GET, credential_id=self.credential.credential_id)

    async def reported_events(self) -> list[str]:
        types, after = list[str](), 0
        while page := (await self.world.call(events.EVENT_LIST, query={"after": after, "limit": 500})).items:
            types += [event.type for event in page if event.type.startswith("access.credential.")]
            after = page[-1].cursor
        return types


@pytest.fixture
async def customer(world: World) -> Customer:
    await world.entitled_app()
    key = ssh_private_key()
    return await deployed(world, key, await world.credential("fleet", key))


async def deployed(world: World, key: str, credential: credentials.Credential, name: str = "one") -> Customer:
    await world.deploy(name, host_key=credential.credential_id)
    token = await world.service_account(f"controller-{name}")
    return Customer(world, key, credential, Held(world, token, await world.claim(token)))


async def test_a_credential_shows_the_public_key_and_never_the_private_one(customer: Customer) -> None:
    key = asyncssh.import_private_key(customer.key)
    listed = (await customer.world.call(credentials.CREDENTIAL_LIST)).items
    assert listed == [customer.credential]
    assert customer.credential.fingerprint == key.get_fingerprint()
    assert customer.credential.public_key.split()[:2] == key.export_public_key().decode().split()[:2]
    assert (customer.credential.version, customer.credential.last_used_at) == (1, None)
    assert "PRIVATE KEY" not in (await customer.send(credentials.CREDENTIAL_LIST)).text


async def test_a_controller_opens_exactly_the_key_that_was_uploaded(customer: Customer) -> None:
    recipient = Recipient()
    delivery = await customer.deliver(recipient)
    delivered = await customer.open(delivery.delivery_id)
    assert recipient.open(delivered) == customer.key
    with pytest.raises(Permanent, match="encrypted for another key"):
        Recipient().open(delivered)
    present = await customer.present()
    assert (present.last_used_at, present.last_used_for) == (customer.world.clock(), customer.held.operation_id)
    assert (present.deliveries, present.deliveries_opened) == (1, 1)
    assert await customer.reported_events() == [
        f"access.credential.{what}" for what in ("created", "delivered", "opened")
    ]


async def test_a_second_opening_is_refused_reported_and_in_the_audit_log(customer: Customer) -> None:
    delivery = await customer.deliver(Recipient())
    await customer.open(delivery.delivery_id)
    answer = await customer.send_open(delivery.delivery_id, headers={"X-Correlation-ID": "second-try"})
    assert (answer.status_code, answer.json()["code"]) == (409, "secret_already_delivered")
    assert (await customer.reported_events())[-1] == "access.credential.reopened"
    rows = await customer.world.call(audit.AUDIT_LIST, query={"correlation_id": "second-try"})
    assert [(row.action, row.result) for row in rows.items] == [("access.credential.open", "failure")]


async def test_of_many_double_openings_exactly_one_each_succeeds(customer: Customer) -> None:
    recipient = Recipient()
    made = [(await customer.deliver(recipient)).delivery_id for _ in range(DELIVERIES)]
    twice = [delivery_id for delivery_id in made for _ in range(2)]
    answers = await asyncio.gather(*(customer.send_open(delivery_id) for delivery_id in twice))
    through = [answer.json()["delivery_id"] for answer in answers if answer.status_code == 200]
    assert sorted(through) == sorted(made)
    refused = [answer.json()["code"] for answer in answers if answer.status_code != 200]
    assert refused == ["secret_already_delivered"] * DELIVERIES
    reported = await customer.reported_events()
    counts = [reported.count(f"access.credential.{event}") for event in ("opened", "reopened")]
    assert counts == [DELIVERIES, DELIVERIES]


async def test_a_delivery_that_is_not_opened_in_time_is_void(customer: Customer) -> None:
    delivery = await customer.deliver(Recipient())
    for _ in range(30):
        customer.world.clock.forward(10)
        await customer.held.heartbeat()
    answer = await customer.send_open(delivery.delivery_id)
    assert (answer.status_code, "not opened in time" in answer.json()["message"]) == (409, True)


async def test_a_dry_run_of_an_opening_shows_nothing_and_uses_nothing_up(customer: Customer) -> None:
    recipient = Recipient()
    delivery = await customer.deliver(recipient)
    answer = await customer.send_open(delivery.delivery_id, query={"dry_run": "true"})
    assert (answer.status_code, answer.json()["sealed"]) == (200, "")
    assert recipient.open(await customer.open(delivery.delivery_id)) == customer.key


async def test_a_rotated_key_takes_the_place_of_the_old_one_which_is_destroyed(customer: Customer) -> None:
    waiting = await customer.deliver(Recipient())
    (old,) = await customer.world.kept()
    new = ssh_private_key()
    rotated = await customer.world.call(
        credentials.CREDENTIAL_ROTATE,
        credentials.RotateCredential(private_key=new),
        credential_id=customer.credential.credential_id,
    )
    assert (rotated.version, rotated.fingerprint) == (2, asyncssh.import_private_key(new).get_fingerprint())
    assert (await customer.send_open(waiting.delivery_id)).json()["message"] == (
        "The credential was rotated since this delivery was made."
    )
    recipient = Recipient()
    delivered = await customer.open((await customer.deliver(recipient)).delivery_id)
    assert recipient.open(delivered) == new
    await secrets_reconcile.sweep(customer.world.site)
    with pytest.raises(custody.SecretMissing):
        await customer.world.site.custody.get(old, 1)
    assert len(await customer.world.kept()) == 1


async def test_a_revoked_credential_is_destroyed_and_its_name_is_free_again(customer: Customer) -> None:
    delivery = await customer.deliver(Recipient())
    revoking = credentials.RevokeCredential(reason="the host is gone")
    for _ in range(2):
        answer = await customer.send(credentials.CREDENTIAL_REVOKE, revoking)
        assert (answer.status_code, answer.json()["state"]) == (200, "revoked")
    assert (await customer.send_open(delivery.delivery_id)).status_code == 409
    with pytest.raises(errors.Conflict, match="revoked"):
        await customer.deliver(Recipient())
    rotating = credentials.RotateCredential(private_key=ssh_private_key())
    assert (await customer.send(credentials.CREDENTIAL_ROTATE, rotating)).status_code == 409
    customer.world.clock.forward(61)
    await secrets_reconcile.sweep(customer.world.site)
    assert await customer.world.kept() == []
    assert (await customer.world.credential()).credential_id != customer.credential.credential_id


async def test_the_same_upload_again_is_the_same_credential_and_another_key_needs_another_name(
    customer: Customer,
) -> None:
    again = await asyncio.gather(*(customer.world.credential("fleet", customer.key) for _ in range(5)))
    assert {credential.credential_id for credential in again} == {customer.credential.credential_id}
    with pytest.raises(errors.Conflict, match="another key"):
        await customer.world.credential()
    customer.world.clock.forward(61)
    await secrets_reconcile.sweep(customer.world.site)
    assert len(await customer.world.kept()) == 1


async def test_uploads_that_race_for_one_name_make_one_credential(world: World) -> None:
    answers = await asyncio.gather(*(world.credential() for _ in range(8)), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["Conflict"] * 7 + ["Credential"]
    world.clock.forward(61)
    await secrets_reconcile.sweep(world.site)
    assert len(await world.kept()) == 1


async def test_a_controller_gets_only_what_its_instance_was_given(customer: Customer) -> None:
    other = await customer.world.credential("other")
    with pytest.raises(errors.PermissionDenied, match="not given"):
        await customer.deliver(Recipient(), other.credential_id)
    with pytest.raises(errors.NotFound):
        await customer.deliver(Recipient(), "cred_none")
    neighbour = await deployed(customer.world, "", other, "two")
    delivery = await customer.deliver(Recipient())
    with pytest.raises(errors.NotFound):
        await neighbour.open(delivery.delivery_id)


async def test_a_controller_that_lost_the_lease_gets_nothing(customer: Customer) -> None:
    delivery = await customer.deliver(Recipient())
    customer.world.clock.forward(16)
    await customer.world.claim(customer.held.token)
    with pytest.raises(errors.LeaseLost):
        await customer.deliver(Recipient())
    with pytest.raises(errors.LeaseLost):
        await customer.open(delivery.delivery_id)


async def test_people_and_other_projects_cannot_open_and_a_runtime_secrets_route_does_not_either(
    customer: Customer,
) -> None:
    world, delivery = customer.world, await customer.deliver(Recipient())
    body = {"operation_id": customer.held.operation_id, "epoch": customer.held.claim.epoch}
    with pytest.raises(errors.PermissionDenied):
        await world.call(credentials.CREDENTIAL_OPEN, body, delivery_id=delivery.delivery_id)
    with pytest.raises(errors.NotFound):
        await customer.held.open(delivery.delivery_id)
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org_id)
    token = await world.service_account("sibling", sibling.project_id)
    for project_id in (sibling.project_id, world.project_id):
        with pytest.raises(errors.NotFound):
            await world.call(
                credentials.CREDENTIAL_OPEN, body, token=token, project_id=project_id, delivery_id=delivery.delivery_id
            )


async def test_a_service_account_neither_uploads_nor_replaces_nor_revokes_keys(customer: Customer) -> None:
    for endpoint, body in (
        (credentials.CREDENTIAL_CREATE, {"name": "mine", "private_key": customer.key}),
        (credentials.CREDENTIAL_ROTATE, {"private_key": customer.key}),
        (credentials.CREDENTIAL_REVOKE, {"reason": "mine"}),
    ):
        assert (await customer.send(endpoint, body, token=customer.held.token)).status_code == 403


def _pem(key: Any, password: bytes = b"") -> str:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return str(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode())


@pytest.mark.parametrize(
    "make",
    [
        ed25519.Ed25519PrivateKey.generate,
        lambda: ec.generate_private_key(ec.SECP256R1()),
        lambda: rsa.generate_private_key(65537, 2048),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_keys_of_every_usual_kind_are_accepted_as_pem_too(world: World, make: Callable[[], Any]) -> None:
    made = await world.credential("fleet", _pem(make()))
    assert made.algorithm in ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_key_that_no_controller_could_use_is_refused_without_being_quoted(world: World) -> None:
    for text, why in (
        (PROTECTED, "protected by a passphrase"),
        (_pem(ed25519.Ed25519PrivateKey.generate(), b"x"), "protected by a passphrase"),
        (_pem(rsa.generate_private_key(65537, 1024)), "fewer than 2048 bits"),
        (_pem(dsa.generate_private_key(2048)), "not an Ed25519, ECDSA or RSA key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nxyzzy\n-----END OPENSSH PRIVATE KEY-----\n", "not an SSH private key"),
        ("xyzzy", "not an SSH private key"),
    ):
        body = {"name": "bad", "private_key": text}
        answer = await world.send(credentials.CREDENTIAL_CREATE, body, key="")
        assert (answer.status_code, why in answer.json()["message"]) == (400, True), why
        assert "xyzzy" not in answer.text
        assert text[60:90] not in answer.text or len(text) < 90


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31)])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_recipient_key_that_would_hide_nothing_is_refused(customer: Customer, key: bytes) -> None:
    body = {"credential_id": customer.credential.credential_id, "recipient_key": base64.b64encode(key).decode()}
    with pytest.raises(errors.ValidationFailed):
        await customer.held.send(credentials.CREDENTIAL_DELIVER, body)
