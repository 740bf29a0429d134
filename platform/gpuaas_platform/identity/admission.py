"""Find the owner of a token, the target that a route names, and the caller's roles there, with one read of the store.

Admissions are cached if the store has a `version`. A revocation, a disabled account or an expired role binding must
take effect with the next call, so the cache is dropped after each commit, and an entry is not used after the token or
one of the role bindings has expired.
"""

import dataclasses
import datetime
from collections.abc import Sequence

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.identity import Project, ServiceAccount

from gpuaas_platform.call import Caller
from gpuaas_platform.identity import authority, orgs, rules, store
from gpuaas_platform.kit import batches, clock, db, ids

_KEPT_MAX = 10_000
_Key = tuple[str, str, str, str]
"""A token and the target of a call: the project, the organisation and the app that the route names."""
_PROJECT = msgspec.json.Decoder(Project)
_ACCOUNT = msgspec.json.Decoder(ServiceAccount)
_ADMISSION = """
    SELECT token.actor_type, token.actor_id, token.token_id, token.expires_at, person.name, person.state,
           account.document, project.document, org.org_id, binding.role, binding.scope, binding.expires_at,
           binding.reason, accepted.project_id
    FROM tokens token
    LEFT JOIN users person ON person.user_id = token.actor_id
    LEFT JOIN service_accounts account ON account.service_account_id = token.actor_id
    LEFT JOIN accepted_accounts accepted ON accepted.service_account_id = token.actor_id AND accepted.project_id = $2
    LEFT JOIN projects project ON project.project_id = $2
    LEFT JOIN orgs org ON org.org_id = $3
    LEFT JOIN bindings binding ON binding.user_id = token.actor_id
        AND binding.scope IN ('platform', $2, $3, project.org_id, $5)
        AND (binding.expires_at = 0 OR binding.expires_at > $4)
    WHERE token.digest = $1"""
_NODE_TOKENS = "SELECT digest, actor_id, token_id, expires_at FROM tokens WHERE actor_type = 'node' AND digest IN"


@dataclasses.dataclass(frozen=True, slots=True)
class Admission:
    """A caller and the target of a call: the project or organisation that the route names, else the platform."""

    caller: Caller
    """The caller, with only the role bindings that apply to the target."""
    project: Project | None = None
    org_id: str = ""
    """The organisation of the target; empty if it has none."""
    app_slug: str = ""
    """The app in the catalog that the route names; empty if it names none. It need not be registered."""
    target_exists: bool = True
    """If false, the caller gets the same response as for a target that they may not see."""
    ends_at: datetime.datetime = clock.EPOCH
    """When the token or the first of the role bindings expires."""
    _verdicts: dict[str, rules.Verdict] = dataclasses.field(default_factory=dict)

    def decide(self, permission: str) -> rules.Verdict:
        """Decide whether the caller has the permission. The verdict is cached: an admission does not change."""
        verdict = self._verdicts.get(permission)
        if verdict is None:
            scopes = authority.scopes_of(self.org_id, self.project.project_id if self.project else "", self.app_slug)
            verdict = authority.can(self.caller, permission, scopes) if self.target_exists else "hidden"
            self._verdicts[permission] = verdict
        return verdict


class Admissions:
    """The admissions that this process caches. Each platform process has its own cache."""

    def __init__(self, database: db.Database) -> None:
        self._database = database
        self._kept: dict[_Key, Admission] = {}
        """By token and target. The key is the token, not its digest: a digest takes longer than all else here, and the
        token is in memory anyway. A dict compares keys only if their keyed hashes match, so timing reveals nothing."""
        self._kept_version: int | None = None
        self._batcher = batches.Batcher()

    async def find_node(self, token: str, now: datetime.datetime) -> Admission:
        """Return the admission of a node. Nodes are many and have no roles, so their tokens are read together."""
        if self._database.version() is not None:
            return await self.find(token, now)
        admission = await self._batcher.ask(self._database, _read_nodes, ids.digest(token))
        if admission is None:
            return await self.find(token, now)  # not a node's token: the caller is refused with the right error
        if admission.ends_at <= now:
            raise errors.TokenExpired
        return admission

    async def find(
        self, token: str, now: datetime.datetime, *, project_id: str = "", org_id: str = "", app_slug: str = ""
    ) -> Admission:
        key = (token, project_id, org_id, app_slug)
        # Read the version before the admission, so that the admission is never older than the version.
        version = self._database.version()
        if version is None:
            return await _read(self._database.reader, key, now)
        if version != self._kept_version:
            self._kept, self._kept_version = {}, version
        kept = self._kept
        admission = kept.get(key)
        if admission is None or admission.ends_at <= now:
            admission = await _read(self._database.reader, key, now)
            if len(kept) < _KEPT_MAX:
                kept[key] = admission
        return admission


async def check_works_in(tx: db.Tx, account_id: str, project_id: str) -> None:
    """Refuse an account that was disabled, or that the project dismissed, after its request was admitted. A use case
    that gives it a lease checks this in its transaction: the end of access also ends the leases, but only those that
    exist."""
    account = await store.SERVICE_ACCOUNTS.get(tx, account_id)
    if account is None or account.state != "active":
        raise errors.TokenInvalid
    if not await store.works_in(tx, account_id, project_id):
        raise errors.NotFound


async def _read(reader: db.Reader, key: _Key, now: datetime.datetime) -> Admission:
    token, project_id, org_id, app_slug = key
    app = authority.app_scope(app_slug) if app_slug else ""
    rows = await reader.all(_ADMISSION, ids.digest(token), project_id, org_id, clock.micros(now), app)
    if not rows:
        raise errors.TokenInvalid
    first = rows[0]
    if first[3] <= clock.micros(now):
        raise errors.TokenExpired
    caller = _caller(rows)
    # If no project or organisation has this id, it may be the name of one that the caller can see.
    if project_id and first[7] is None and (named := await orgs.project_named(reader, caller, now, project_id)):
        return await _read(reader, (token, named.project_id, org_id, app_slug), now)
    if org_id and first[8] is None and (org := await orgs.org_named(reader, caller, now, org_id)):
        return await _read(reader, (token, project_id, org.org_id, app_slug), now)
    project = _PROJECT.decode(first[7]) if first[7] is not None else None
    return Admission(
        caller,
        project,
        org_id=project.org_id if project else first[8] or "",
        app_slug=app_slug,
        target_exists=project is not None if project_id else first[8] is not None or not org_id,
        ends_at=min([clock.moment(first[3]), *(end for binding in caller.bindings if (end := binding.expires_at))]),
    )


async def _read_nodes(database: db.Database, digests: Sequence[str]) -> list[Admission | None]:
    asked = batches.padded(digests)
    rows = await database.reader.all(f"{_NODE_TOKENS} ({db.marks(len(asked))})", *asked)
    by_digest = {row[0]: _node(row[1], row[2], clock.moment(row[3])) for row in rows}
    return [by_digest.get(digest) for digest in digests]


def _node(node_id: str, session_id: str, expires_at: datetime.datetime) -> Admission:
    return Admission(Caller("node", node_id, session_id=session_id, session_expires_at=expires_at), ends_at=expires_at)


def _caller(rows: Sequence[db.Row]) -> Caller:
    kind, actor_id, session_id, expires_at = rows[0][0], rows[0][1], rows[0][2], clock.moment(rows[0][3])
    if kind == "node":
        return _node(actor_id, session_id, expires_at).caller
    if kind == "service_account":
        account = _ACCOUNT.decode(rows[0][6]) if rows[0][6] is not None else None
        if account is None or account.state != "active":
            raise errors.TokenInvalid
        caller = authority.of_account(account, [rows[0][13]] if rows[0][13] is not None else ())
        return dataclasses.replace(caller, session_id=session_id, session_expires_at=expires_at)
    if rows[0][5] != "active":
        raise errors.TokenInvalid
    roles = tuple(store.role_of(row[9], row[10], row[11], row[12]) for row in rows if row[9] is not None)
    return Caller("user", actor_id, rows[0][4], roles, session_id, expires_at)
