"""What happened to an identity. Domains that depend on it react in the same transaction; see `kit.reactions`."""

from dataclasses import dataclass

from gpuaas_platform.call import Origin


@dataclass(frozen=True)
class AccountLostAccess:
    """A service account may do nothing in the project any more: it was dismissed, disabled or deleted."""

    origin: Origin
    project_id: str
    service_account_id: str
