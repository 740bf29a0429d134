"""Runtime secrets of the fake platform. They are issued for an operation, and each delivery is opened once."""

import datetime
import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuaas_contract.catalog import SecretPurpose
from gpuaas_contract.errors import Conflict, NotFound, PurposeUndeclared, SecretAlreadyDelivered
from gpuaas_contract.operations import Operation
from gpuaas_contract.secrets import IssuedSecret, IssueSecret, OpenDelivery, OpenedDelivery, RuntimeSecret
from msgspec.structs import replace

from gpuaas_sdk.testing.platform.records import Records
from gpuaas_sdk.testing.platform.runtime import Runtime


@dataclass
class _Delivery:
    secret_id: str
    is_opened: bool = False


class Secrets:
    """Secrets by id, with their values and deliveries."""

    def __init__(self, records: Records, runtime: Runtime, purposes: Sequence[SecretPurpose]) -> None:
        self.secrets: dict[str, RuntimeSecret] = {}
        self._records = records
        self._runtime = runtime
        self._purposes = purposes
        self._values: dict[str, str] = {}
        self._deliveries: dict[str, _Delivery] = {}
        self.new_value: Callable[[str], str] = lambda _: secrets.token_urlsafe(32)
        """Makes the value of a new secret of this name."""

    def issue(self, operation_id: str, request: IssueSecret) -> IssuedSecret:
        """Return a new delivery of the secret. The first request with a name creates the secret."""
        operation = self._runtime.claimed(operation_id, request.epoch)
        if request.purpose not in self._purposes:
            raise PurposeUndeclared(f"{operation.app_slug} declares no secret purpose {request.purpose}.")
        secret = self._present(operation, request) or self._new(operation, request)
        if request.value and request.value != self._values[secret.secret_id]:
            raise Conflict(f"{request.purpose} {request.name} is issued with another value.")
        self.secrets[secret.secret_id] = replace(secret, deliveries=secret.deliveries + 1)
        delivery_id = self._records.new_id("dlv")
        self._deliveries[delivery_id] = _Delivery(secret.secret_id)
        return IssuedSecret(secret=self.secrets[secret.secret_id], delivery_id=delivery_id)

    def open(self, delivery_id: str, request: OpenDelivery) -> OpenedDelivery:
        """Return the value of a delivery that was not opened before."""
        operation = self._runtime.claimed(request.operation_id, request.epoch)
        delivery = self._deliveries.get(delivery_id)
        if delivery is None or self.secrets[delivery.secret_id].instance_id != operation.instance_id:
            raise NotFound(f"There is no delivery {delivery_id} for this operation's instance.")
        if delivery.is_opened:
            raise SecretAlreadyDelivered("This delivery was already opened.")
        delivery.is_opened = True
        secret = self.secrets[delivery.secret_id]
        secret = replace(secret, deliveries_opened=secret.deliveries_opened + 1)
        self.secrets[secret.secret_id] = secret
        return OpenedDelivery(delivery_id=delivery_id, secret=secret, value=self._values[secret.secret_id])

    def _present(self, operation: Operation, request: IssueSecret) -> RuntimeSecret | None:
        wanted = (operation.instance_id, request.purpose, request.name)
        for secret in self.secrets.values():
            named = (secret.instance_id, secret.purpose, secret.name) == wanted
            if named and secret.expires_at > self._records.clock():
                return secret
        return None

    def _new(self, operation: Operation, request: IssueSecret) -> RuntimeSecret:
        now, secret_id = self._records.clock(), self._records.new_id("sec")
        value = self._values[secret_id] = request.value or self.new_value(request.name)
        return RuntimeSecret(
            secret_id=secret_id,
            org_id=operation.org_id,
            project_id=operation.project_id,
            instance_id=operation.instance_id,
            app_slug=operation.app_slug,
            purpose=request.purpose,
            name=request.name,
            version=1 + sum(secret.name == request.name for secret in self.secrets.values()),
            state="issued",
            fingerprint=hashlib.sha256(f"{operation.instance_id}\n{value}".encode()).hexdigest(),
            operation_id=operation.operation_id,
            issued_by="test",
            issued_at=now,
            expires_at=now + datetime.timedelta(seconds=request.ttl_s),
            deliveries=0,
            deliveries_opened=0,
        )
