"""What the platform hands a controller for one operation: secrets, credentials and artifacts. `operation` asks."""

import msgspec
from gpuaas_contract import artifacts, deliveries
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.catalog import PROJECT_APP_GET, SecretPurpose
from gpuaas_contract.credentials import (
    CREDENTIAL_DELIVER,
    CREDENTIAL_OPEN,
    Credential,
    DeliverCredential,
    OpenCredential,
)
from gpuaas_contract.deliveries import CreateDelivery, Delivery
from gpuaas_contract.errors import ApiError, LeaseLost, SecretAlreadyDelivered
from gpuaas_contract.instances import Instance
from gpuaas_contract.secrets import DELIVERY_OPEN, SECRET_ISSUE, IssueSecret, OpenDelivery

from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.failures import Permanent, Temporary
from gpuaas_sdk.sealed import Recipient


async def secret(lease: Lease, purpose: SecretPurpose, name: str, value: str, ttl_s: int) -> str:
    request = IssueSecret(epoch=lease.epoch, purpose=purpose, name=name, value=value, ttl_s=ttl_s)
    opening = OpenDelivery(operation_id=lease.record.operation_id, epoch=lease.epoch)
    try:
        issued = await lease.report(SECRET_ISSUE, request)
        return (await lease.call(DELIVERY_OPEN, opening, delivery_id=issued.delivery_id)).value
    except LeaseLost:
        raise
    except ApiError as error:
        raise refused(f"No secret {name} for {purpose}", error) from error


async def credential(lease: Lease, credential_id: str) -> tuple[Credential, str]:
    recipient = Recipient()
    request = DeliverCredential(epoch=lease.epoch, credential_id=credential_id, recipient_key=recipient.public_key)
    opening = OpenCredential(operation_id=lease.record.operation_id, epoch=lease.epoch)
    try:
        delivery = await lease.report(CREDENTIAL_DELIVER, request)
        opened = await lease.call(CREDENTIAL_OPEN, opening, delivery_id=delivery.delivery_id)
    except LeaseLost:
        raise
    except SecretAlreadyDelivered as error:
        # The first answer was lost on its way; a new delivery brings the key again.
        raise Temporary("The answer with the credential was lost.", after_s=0) from error
    except ApiError as error:
        raise refused(f"No credential {credential_id}", error) from error
    return opened.credential, recipient.open(opened)


async def named_artifact(lease: Lease, instance: Instance, name: str, version: str) -> Artifact:
    """`version` is the one that counts where it is another than the instance's."""
    try:
        return await _artifact(lease, name, await _digest(lease, instance, name, version))
    except LeaseLost:
        raise
    except ApiError as error:
        raise refused(f"No artifact {name}", error) from error


async def artifact(lease: Lease, found: Artifact) -> Delivery:
    record = lease.record
    request = CreateDelivery(purpose=record.kind, operation_id=record.operation_id)
    try:
        delivery = await lease.call(deliveries.DELIVERY_CREATE, request, artifact_id=found.artifact_id)
    except LeaseLost:
        raise
    except ApiError as error:
        raise refused(f"No delivery of artifact {found.name}", error) from error
    return msgspec.structs.replace(delivery, url=f"{lease.server}{delivery.url}")


async def _digest(lease: Lease, instance: Instance, name: str, version: str) -> str:
    digests = instance.artifacts
    if version:
        wanted = await lease.call(PROJECT_APP_GET, app_slug=instance.app_slug, version=version)
        digests = {key: reference.digest for key, reference in wanted.manifest.artifacts.items()}
    if name not in digests:
        named = ", ".join(sorted(digests)) or "none"
        raise Permanent(
            f"{instance.app_slug} {version or instance.app_version} has no artifact {name}; it has {named}."
        )
    return digests[name]


async def _artifact(lease: Lease, name: str, digest: str) -> Artifact:
    """The project's own goes before one the platform shares."""
    for shared in (False, True):
        async for found in lease.pages(artifacts.LIST, query={"name": name, "shared": shared}):
            if found.digest == digest:
                return found
    raise Permanent(
        f"There is no artifact {name} with {digest} in this project.", fix="Publish, verify and promote it first."
    )


def refused(what: str, error: ApiError) -> Temporary | Permanent:
    """A refusal of the platform, as the app's own work would have said it."""
    text = f"{what}: {error.message}"
    if isinstance(error, SecretAlreadyDelivered):
        # Its first answer was lost on the way; the next delivery brings the same.
        return Temporary(text, after_s=0)
    return Temporary(text) if error.retryable else Permanent(text, fix=error.fix)
