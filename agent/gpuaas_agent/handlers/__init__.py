"""Every task type this agent knows. A type that is not in this table is refused without effect."""

from __future__ import annotations

from typing import Any

from gpuaas_agent import facts
from gpuaas_agent.handlers import allocation, spec


def host_facts(_params: dict[str, Any]) -> dict[str, Any]:
    return facts.collect()


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
    "allocation.release": spec.Handler(
        params={"allocation_id": spec.ALLOCATION_ID, "user": spec.USER},
        function=allocation.release,
    ),
    "host.facts": spec.Handler(params={}, function=host_facts),
}
