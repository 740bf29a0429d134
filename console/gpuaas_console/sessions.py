"""Sessions of signed-in people, in the memory of this process. The browser has a random id; the token of the platform
stays here. After a restart of the console people sign in again."""

import datetime
import hashlib
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuaas_contract.errors import ApiError
from gpuaas_contract.identity import ME, Me
from gpuaas_contract.sessions import LOGOUT
from gpuaas_sdk.auth import BearerToken, NoAuth
from gpuaas_sdk.client import Client
from gpuaas_sdk.outcomes import NoAnswer

from gpuaas_console.live import Follower

SESSION_MAX = datetime.timedelta(hours=12)
SESSIONS_MAX = 1000
PER_PERSON_MAX = 10
"""A person who signs in more often loses the oldest own session, and others keep theirs."""
CALL_S = 20.0
"""Of the sign-in. Checking a password takes long on a busy host, and people who wait sign in in the end."""


@dataclass
class Session:
    """One sign-in at the console."""

    client: Client
    me: Me
    csrf: str
    expires_at: datetime.datetime
    borrowed: bool
    """The token belongs to another program, as with a one-time link: signing out here does not end it."""
    ends_with: str = ""
    """State of a sign-in at the identity provider that this browser began last. When it ends well, so does this."""
    last_project: str = ""
    """The project of the last page, for the links of pages without a project."""
    followers: dict[str, Follower] = field(default_factory=dict)
    remembered: dict[tuple[str, ...], tuple[datetime.datetime, Any]] = field(default_factory=dict)
    """Answers that are read again only after some time: manifests and permissions."""
    names: dict[str, str] = field(default_factory=dict)
    """Id of a project, a person or a program -> its name, of the projects whose pages were read."""
    readings: dict[tuple[str, str], str] = field(default_factory=dict)
    """Instance id and action -> the operation that reads this table of the app, if it has not ended yet."""

    def follower(self, project: str) -> Follower:
        return self.followers.setdefault(project, Follower(self.client, project))

    async def close(self) -> None:
        for follower in self.followers.values():
            await follower.close()
        await self.client.aclose()


class Sessions:
    """All sessions of this process, by the digest of the id that the browser has."""

    def __init__(self, server: str, ca_file: Path | None) -> None:
        self.server = server
        self._ca_file = ca_file
        self._sessions: dict[str, Session] = {}
        """Oldest first."""
        self.streams: Counter[str] = Counter()
        """Actor id -> number of open streams, of all sessions of this person."""

    def anonymous(self) -> Client:
        """Return a client for the endpoints that need no token."""
        return Client(self.server, NoAuth(), ca_file=self._ca_file)

    async def start(self, token: str, now: datetime.datetime, *, borrowed: bool = False) -> str:
        """Check the token at the platform and start a session. Return the id for the browser's cookie."""
        client = Client(self.server, BearerToken(token), ca_file=self._ca_file)
        try:
            me = await client.call(ME, timeout_s=CALL_S)
        except BaseException:
            await client.aclose()
            raise
        await self._end_surplus(me.actor_id, now)
        expires_at = min(now + SESSION_MAX, me.session_expires_at or now + SESSION_MAX)
        session_id = secrets.token_urlsafe(32)
        self._sessions[_digest(session_id)] = Session(client, me, secrets.token_urlsafe(32), expires_at, borrowed)
        return session_id

    def get(self, session_id: str, now: datetime.datetime) -> Session | None:
        session = self._sessions.get(_digest(session_id)) if session_id else None
        return session if session is not None and now < session.expires_at else None

    async def end_with(self, state: str) -> None:
        """End the sessions of the browser that began this sign-in at the identity provider."""
        for digest in [digest for digest, session in self._sessions.items() if session.ends_with == state]:
            await self._end(digest)

    async def end(self, session_id: str) -> None:
        """End a session here and, if its token was made for it, at the platform."""
        await self._end(_digest(session_id))

    async def _end(self, digest: str) -> None:
        session = self._sessions.pop(digest, None)
        if session is None:
            return
        try:
            if not session.borrowed:
                await session.client.call(LOGOUT, timeout_s=CALL_S)
        except (ApiError, NoAnswer):
            pass  # the token expires by itself; the session here is over in any case
        finally:
            await session.close()

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def _end_surplus(self, actor_id: str, now: datetime.datetime) -> None:
        """Make room for one more session of this person."""
        known = {key: (session.me.actor_id, session.expires_at) for key, session in self._sessions.items()}
        for key in surplus(known, actor_id, now):
            # Another sign-in may have ended it while this one waited.
            if (session := self._sessions.pop(key, None)) is not None:
                await session.close()


def surplus(known: Mapping[str, tuple[str, datetime.datetime]], actor_id: str, now: datetime.datetime) -> set[str]:
    """Return the sessions that end before one more of this person starts. `known` has the person and the end of each
    session, oldest first. Pure."""
    old = {key for key, (_, expires_at) in known.items() if now >= expires_at}
    own = [key for key, (owner, _) in known.items() if owner == actor_id and key not in old]
    old.update(own[: max(0, len(own) - PER_PERSON_MAX + 1)])
    rest = [key for key in known if key not in old]
    return {*old, *rest[: max(0, len(rest) - SESSIONS_MAX + 1)]}


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()
