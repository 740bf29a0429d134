"""Secrets and credentials that the platform delivers for one operation. `Operation` calls these functions."""

from gpuaas_contract.catalog import SecretPurpose
from gpuaas_contract.credentials import (
    CREDENTIAL_DELIVER,
    CREDENTIAL_OPEN,
    Credential,
    DeliverCredential,
    OpenCredential,
)
from gpuaas_contract.errors import ApiError, LeaseLost, SecretAlreadyDelivered
from gpuaas_contract.secrets import DELIVERY_OPEN, SECRET_ISSUE, IssueSecret, OpenDelivery

from gpuaas_sdk.controller import rules
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.failures import Temporary
from gpuaas_sdk.sealed import Recipient


async def secret(lease: Lease, purpose: SecretPurpose, name: str, value: str, ttl_s: int) -> str:
    """Return the value of the instance's secret; the first request creates it."""
    lease.log.hide(value)
    request = IssueSecret(epoch=lease.epoch, purpose=purpose, name=name, value=value, ttl_s=ttl_s)
    opening = OpenDelivery(operation_id=lease.record.operation_id, epoch=lease.epoch)
    try:
        issued = await lease.report(SECRET_ISSUE, request)
        delivered = await lease.call(DELIVERY_OPEN, opening, delivery_id=issued.delivery_id)
    except LeaseLost:
        raise
    except ApiError as error:
        raise rules.refused(f"Secret {name} ({purpose}) cannot be read", error) from error
    lease.log.hide(delivered.value)
    return delivered.value


async def credential(lease: Lease, credential_id: str) -> tuple[Credential, str]:
    """Return a customer's credential and its private key."""
    recipient = Recipient()
    request = DeliverCredential(epoch=lease.epoch, credential_id=credential_id, recipient_key=recipient.public_key)
    opening = OpenCredential(operation_id=lease.record.operation_id, epoch=lease.epoch)
    try:
        delivery = await lease.report(CREDENTIAL_DELIVER, request)
        sealed = await lease.call(CREDENTIAL_OPEN, opening, delivery_id=delivery.delivery_id)
    except LeaseLost:
        raise
    except SecretAlreadyDelivered as error:
        # The response with the key was lost. The retry requests a new delivery.
        raise Temporary(
            f"The response that contained credential {credential_id} was lost; the step requests the credential again",
            after_s=0,
        ) from error
    except ApiError as error:
        raise rules.refused(f"Credential {credential_id} cannot be read", error) from error
    private_key = recipient.open(sealed)
    lease.log.hide(private_key)
    return sealed.credential, private_key
