"""The stewardships that this process holds: which instances it looks after between operations, and until when.

`health` renews them, all in one request, and passes the epoch of each to the reports about its instance."""

import datetime
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gpuaas_contract.errors import LeaseLost
from gpuaas_contract.stewardships import RENEW, STEWARDSHIPS_MAX, HeldStewardship, RenewStewardships

from gpuaas_sdk.client import Client

_RELEASE_LEASE_S = 1
"""A process that stops shortens its leases to this time, so that another one can take them soon."""


@dataclass
class Held:
    """The stewardship of one instance."""

    epoch: int
    revision: int
    """Revision of the instance, as last reported by the platform."""
    until: float
    """When the lease ends, by the clock of this process."""
    observed_at: datetime.datetime | None = None
    """The last look that was not sent to the platform yet."""


class Renewal(NamedTuple):
    """What a renewal changed."""

    taken: frozenset[str]
    """Instances that this process did not look after before, or that another process looked after in between."""
    lost: frozenset[str]


class Stewardships:
    """The stewardships of one app's instances in one project."""

    def __init__(
        self,
        client: Client,
        *,
        app_slug: str,
        project_id: str,
        name: str,
        lease_s: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._app_slug = app_slug
        self._project_id = project_id
        # Two processes with the same name must not take each other for themselves.
        self.holder = f"{name[:180]}/{uuid.uuid4().hex[:8]}"
        self._lease_s = lease_s
        self._clock = clock
        self._held: dict[str, Held] = {}

    @property
    def instance_ids(self) -> tuple[str, ...]:
        """The instances that this process looks after."""
        return tuple(self._held)

    def get(self, instance_id: str) -> Held | None:
        """Return the stewardship of the instance; None if this process does not hold it, or not any more."""
        held = self._held.get(instance_id)
        return held if held is not None and held.until > self._clock() else None

    def epoch(self, instance_id: str) -> int:
        """Return the epoch for a report on the instance. Raises `LeaseLost` if this process may not report on it."""
        held = self.get(instance_id)
        if held is None:
            raise LeaseLost(f"This process does not hold the stewardship of {instance_id}.")
        return held.epoch

    def note_look(self, instance_id: str) -> None:
        """Remember that the instance was looked at now. The next renewal reports it."""
        if instance_id in self._held:
            self._held[instance_id].observed_at = datetime.datetime.now(datetime.UTC)

    def lose(self, instance_id: str) -> None:
        """Forget a stewardship that the platform gave to another process."""
        self._held.pop(instance_id, None)

    async def renew(self, *, take: bool = True) -> Renewal:
        """Renew all stewardships and take free ones. After an error they stay as they are until their leases end."""
        # The platform counts a lease from the receipt of the request. Here it is counted from the sending, which is
        # earlier, so this process never believes in a lease that has expired.
        sent_at, sent = self._clock(), dict(self._held)
        answer = await self._client.call(
            RENEW, self._request(sent, take=take, lease_s=self._lease_s), project_id=self._project_id
        )
        until = sent_at + self._lease_s
        known = {instance_id: held.epoch for instance_id, held in self._held.items()}
        for renewed in answer.held:
            self._note(renewed.instance_id, renewed.epoch, renewed.revision, until)
        lost = self._without(answer.lost, sent)
        # With another epoch, another process looked after the instance in between.
        taken = [renewed for renewed in answer.held if known.get(renewed.instance_id) != renewed.epoch]
        return Renewal(frozenset(renewed.instance_id for renewed in taken), lost)

    async def release(self) -> None:
        """Let the leases end soon, because this process stops."""
        if self._held:
            request = self._request(self._held, take=False, lease_s=_RELEASE_LEASE_S)
            self._held = {}
            await self._client.call(RENEW, request, timeout_s=_RELEASE_LEASE_S, project_id=self._project_id)

    def _request(self, held: dict[str, Held], *, take: bool, lease_s: int) -> RenewStewardships:
        return RenewStewardships(
            app_slug=self._app_slug,
            holder=self.holder,
            lease_s=lease_s,
            held=[
                HeldStewardship(instance_id=instance_id, epoch=item.epoch, observed_at=item.observed_at)
                for instance_id, item in held.items()
            ],
            take_max=max(0, STEWARDSHIPS_MAX - len(held)) if take else 0,
        )

    def _note(self, instance_id: str, epoch: int, revision: int, until: float) -> None:
        held = self._held.get(instance_id)
        if held is None or held.epoch != epoch:
            self._held[instance_id] = Held(epoch, revision, until)
        else:
            held.revision, held.until = max(held.revision, revision), until

    def _without(self, instance_ids: Iterable[str], sent: dict[str, Held]) -> frozenset[str]:
        """Forget stewardships that were lost. One that was taken again after the request was sent is kept."""
        lost = frozenset(item for item in instance_ids if self._held.get(item) is sent.get(item))
        for instance_id in lost:
            self.lose(instance_id)
        return lost
