"""Forget what was kept for repeats and is too old: kept answers and expired tokens, in batches that hold nobody up."""

from gpuaas_platform.call import Site
from gpuaas_platform.edge import idempotency
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.kit import clock, db

TOPIC = "edge.sweep"
BATCH = 500
_EXPIRED_TOKENS_KEPT_S = 86_400
"""For a day an expired token is told apart from a wrong one."""


async def sweep(site: Site) -> None:
    now = clock.micros(site.clock())
    answers_before = now - site.settings.idempotency_kept_s * 1_000_000
    tokens_before = now - _EXPIRED_TOKENS_KEPT_S * 1_000_000

    async def use_case(tx: db.Tx) -> int:
        answers = await idempotency.forget(tx, answers_before, BATCH)
        return answers + await token_store.forget_some_tokens(tx, tokens_before, BATCH)

    while await _is_old(site.database.reader, answers_before, tokens_before):
        await site.database.write(use_case)


async def _is_old(reader: db.Reader, answers_before: int, tokens_before: int) -> bool:
    """A look costs one step in each index, so the sweep may run every second."""
    row = await reader.one(
        """SELECT EXISTS (SELECT 1 FROM idempotency WHERE created_at < $1)
               OR EXISTS (SELECT 1 FROM tokens WHERE expires_at < $2)""",
        answers_before,
        tokens_before,
    )
    return row is not None and bool(row[0])
