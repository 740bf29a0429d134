"""How long expired tokens and unfinished sign-ins are kept."""

from gpuaas_platform.kit import db
from gpuaas_platform.kit.retention import Retained

_EXPIRED_TOKENS_KEPT_S = 86_400
"""For a day, the answer to an expired token is that it expired; after that, that it is unknown."""


async def _is_old_token(reader: db.Reader, before: int) -> bool:
    return await reader.one("SELECT 1 FROM tokens WHERE expires_at < $1 LIMIT 1", before) is not None


async def _forget_tokens(tx: db.Tx, before: int, limit: int) -> None:
    await tx.run(
        "DELETE FROM tokens WHERE digest IN (SELECT digest FROM tokens WHERE expires_at < $1 LIMIT $2)", before, limit
    )


async def _is_old_sign_in(reader: db.Reader, before: int) -> bool:
    return await reader.one("SELECT 1 FROM oidc_sign_ins WHERE expires_at < $1 LIMIT 1", before) is not None


async def _forget_sign_ins(tx: db.Tx, before: int, limit: int) -> None:
    await tx.run(
        """DELETE FROM oidc_sign_ins WHERE state_digest IN (
               SELECT state_digest FROM oidc_sign_ins WHERE expires_at < $1 LIMIT $2)""",
        before,
        limit,
    )


RETAINED = (
    Retained("identity.tokens", lambda _: _EXPIRED_TOKENS_KEPT_S, _is_old_token, _forget_tokens),
    Retained("identity.sign_ins", lambda _: 0, _is_old_sign_in, _forget_sign_ins),
)
