"""The table of task types and their handlers. A task of any other type is refused without effect."""

from __future__ import annotations

from collections.abc import Sequence

from gpuaas_agent import identity, parameters, rules
from gpuaas_agent.handlers import allocation, artifact, authorized_keys, health, people, ssh_trust, upgrade
from gpuaas_agent.host import facts

HANDLERS: dict[str, rules.Handler] = {
    "allocation.provision": rules.Handler(
        params={
            "allocation_id": parameters.ALLOCATION_ID,
            "user": parameters.USER,
            "principal": parameters.PRINCIPAL,
            "user_ca_public_keys": parameters.public_keys,
        },
        function=allocation.provision,
    ),
    "allocation.install_authorized_keys": rules.Handler(
        params={
            "allocation_id": parameters.ALLOCATION_ID,
            "user": parameters.USER,
            "public_keys": parameters.public_key_set,
        },
        function=authorized_keys.install,
    ),
    "allocation.people": rules.Handler(
        params={
            "allocation_id": parameters.ALLOCATION_ID,
            "user": parameters.USER,
            "people": parameters.people,
        },
        function=people.apply,
    ),
    "allocation.release": rules.Handler(
        params={"allocation_id": parameters.ALLOCATION_ID, "user": parameters.USER},
        function=allocation.release,
    ),
    "artifact.remove": rules.Handler(
        params={
            "placement_id": parameters.PLACEMENT_ID,
            "allocation_id": parameters.ALLOCATION_ID,
            "user": parameters.USER,
            "digest": parameters.DIGEST,
        },
        function=artifact.unplace,
    ),
    "ssh.trust": rules.Handler(
        params={"user_ca_public_keys": parameters.public_keys, "revoked_serials": parameters.serials},
        function=ssh_trust.apply,
    ),
    "host.facts": rules.Handler(params={}, function=lambda _: facts.collect()),
    "host.health": rules.Handler(params={}, function=lambda _: health.report()),
}


def complete(
    client: identity.NodeClient, archive: upgrade.Archive, release_keys: Sequence[str]
) -> dict[str, rules.Handler]:
    """Return all handlers: HANDLERS, and those that call the platform or replace the agent's own file."""
    return {
        **HANDLERS,
        "artifact.fetch": rules.Handler(
            params={
                "placement_id": parameters.PLACEMENT_ID,
                "allocation_id": parameters.ALLOCATION_ID,
                "user": parameters.USER,
                "digest": parameters.DIGEST,
                "size_bytes": parameters.whole_number(1, parameters.SIZE_BYTES_MAX),
                "mode": parameters.FILE_MODE,
            },
            function=lambda params: artifact.fetch(params, client),
        ),
        "agent.upgrade": rules.Handler(
            params={"sha256": parameters.SHA256, "trial_s": parameters.whole_number(1, 600)},
            function=lambda params: upgrade.upgrade(params["sha256"], params["trial_s"], client, archive, release_keys),
        ),
    }
