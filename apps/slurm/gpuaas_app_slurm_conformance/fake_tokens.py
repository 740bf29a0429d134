"""Tokens as slurmctld makes them, without a valid signature, and the file that a person gets."""

import base64
import json
import time
from dataclasses import dataclass

from gpuaas_sdk.machine import Ran

SIGNATURE = "c2lnbmF0dXJl"


@dataclass
class FakeTokens:
    not_made: Ran | None = None
    """What `scontrol token` prints instead of a token."""
    not_written: Ran | None = None
    """What the machine prints if the file cannot be written."""

    def made(self, username: str, lifespan: str) -> Ran:
        """Answer `scontrol token`."""
        now, login = int(time.time()), username.removeprefix("username=")
        claims = {"exp": now + int(lifespan.removeprefix("lifespan=")), "iat": now, "sun": login}
        parts = [encoded({"alg": "HS256", "typ": "JWT"}), encoded(claims), SIGNATURE]
        return self.not_made or Ran(0, f"SLURM_JWT={'.'.join(parts)}\n", "")

    def written(self, name: str) -> Ran:
        return self.not_written or Ran(0, f"/home/people/ada/{name}\n", "")


def encoded(value: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
