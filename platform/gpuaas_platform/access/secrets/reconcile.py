"""Delete values from custody: expired and revoked values, and values of requests that were interrupted."""

import functools

from gpuaas_contract.instances import Instance

from gpuaas_platform.access import values
from gpuaas_platform.access.secrets import service, store
from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.custody import port as custody
from gpuaas_platform.instances import service as instances
from gpuaas_platform.instances import status as instance_status
from gpuaas_platform.kit import db, loop
from gpuaas_platform.operations import read as operations

TOPIC = values.TOPIC
DELETED_TOPIC = instance_status.DELETED_TOPIC
DELETED_SWEEP_S = 60.0
"""How often to search for deleted instances without a wake-up. Limits the delay after a lost wake-up."""
_BATCH = 100
_INSTANCES_PER_STATEMENT = 10_000


async def sweep(site: Site) -> None:
    while due := await store.due(site.database.reader, site.clock(), _BATCH):
        for secret_id in due:
            try:
                await site.custody.delete(secret_id)
            except custody.CustodyError as error:
                raise loop.Later(f"expired secrets could not be deleted from the secret store yet: {error}") from error
            await site.database.write(functools.partial(_note_destroyed, site, secret_id))


async def end_secrets_of_deleted(site: Site) -> None:
    """Revoke the secrets that deleted instances still have. Runs after each deletion."""
    reader = site.database.reader
    instance_ids = await store.instances_with_issued(reader)
    for some in db.chunks(instance_ids, _INSTANCES_PER_STATEMENT):
        for instance in await instances.deleted_among(reader, some):
            await site.database.write(functools.partial(_end_of_deleted, site, instance))


async def _end_of_deleted(site: Site, instance: Instance, tx: db.Tx) -> None:
    """Revoke the instance's secrets, with the correlation id of the operation that deleted the instance."""
    deleted_by = await operations.heads_by_id(tx, [instance.last_operation_id])
    correlation_id = next((operation.correlation_id for operation in deleted_by.values()), "")
    origin = system_origin(site.clock(), correlation_id)
    for secret in await store.all_issued(tx, instance.instance_id):
        await service.end(tx, origin, secret, "revoked", "the instance was decommissioned")


async def _note_destroyed(site: Site, secret_id: str, tx: db.Tx) -> None:
    secret = await store.SECRETS.get(tx, secret_id)
    if secret is not None and secret.state == "issued":
        await service.end(tx, system_origin(site.clock()), secret, "expired")
    await store.forget_due(tx, secret_id)
