"""How long expired tokens and unfinished sign-ins are kept."""

from gpuaas_platform.kit import db
from gpuaas_platform.kit.retention import Retained

_EXPIRED_TOKENS_KEPT_S = 86_400
"""For a day, the response to an expired token is "expired"; after that, the token is unknown."""


def _expired(name: str, table: str, key: str, kept_s: int) -> Retained:
    look = f"SELECT {key} FROM {table} WHERE expires_at < $1 LIMIT"  # noqa: S608 - names are ours

    async def is_old(reader: db.Reader, before: int) -> bool:
        return await reader.one(f"{look} 1", before) is not None

    async def forget(tx: db.Tx, before: int, limit: int) -> None:
        await tx.run(f"DELETE FROM {table} WHERE {key} IN ({look} $2)", before, limit)  # noqa: S608

    return Retained(name, lambda _: kept_s, is_old, forget)


RETAINED = (
    _expired("identity.tokens", "tokens", "digest", _EXPIRED_TOKENS_KEPT_S),
    _expired("identity.sign_ins", "oidc_sign_ins", "state_digest", 0),
)
