"""Every task type this agent knows. A type that is not in this table is refused without effect."""

from __future__ import annotations

from gpuaas_agent import facts, identity
from gpuaas_agent.handlers import allocation, artifact, authorized_keys, health, revocation, spec, upgrade

HANDLERS: dict[str, spec.Handler] = {
    "allocation.provision": spec.Handler(
        params={
            "allocation_id": spec.ALLOCATION_ID,
            "user": spec.USER,
            "principal": spec.PRINCIPAL,
            "user_ca_public_keys": spec.public_keys,
        },
        function=allocation.provision,
    ),
    "allocation.install_authorized_keys": spec.Handler(
        params={"allocation_id": spec.ALLOCATION_ID, "user": spec.USER, "public_keys": spec.public_key_set},
        function=authorized_keys.install,
    ),
    "allocation.release": spec.Handler(
        params={"allocation_id": spec.ALLOCATION_ID, "user": spec.USER},
        function=allocation.release,
    ),
    "ssh.trust": spec.Handler(
        params={"user_ca_public_keys": spec.public_keys, "revoked_serials": spec.serials},
        function=revocation.apply,
    ),
    "host.facts": spec.Handler(params={}, function=lambda _: facts.collect()),
    "host.health": spec.Handler(params={}, function=lambda _: health.report()),
}


def known_to(session: identity.Session, archive: upgrade.Archive) -> dict[str, spec.Handler]:
    """The whole table: those above, and those that need the platform or the agent's own file."""
    return {
        **HANDLERS,
        "artifact.fetch": spec.Handler(
            params={
                "placement_id": spec.PLACEMENT_ID,
                "allocation_id": spec.ALLOCATION_ID,
                "user": spec.USER,
                "digest": spec.DIGEST,
                "size_bytes": spec.whole_number(1, spec.SIZE_BYTES_MAX),
                "mode": spec.FILE_MODE,
            },
            function=lambda params: artifact.fetch(params, session),
        ),
        "agent.upgrade": spec.Handler(
            params={"sha256": spec.SHA256, "trial_s": spec.whole_number(1, 600)},
            function=lambda params: upgrade.to(params["sha256"], params["trial_s"], session, archive),
        ),
    }
