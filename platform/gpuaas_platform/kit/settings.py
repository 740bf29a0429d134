"""Settings, built once in `main` and handed down."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    data_dir: Path
    """Keys, certificates and the embedded database live here; readable by the owner only."""
    database_url: str = ""
    """Empty: SQLite in `data_dir`. `postgresql://…`: that server."""
    region: str = "local"
    """First part of every resource name."""
    session_ttl_s: int = 12 * 3600
    """Life of a person's token."""
    service_account_token_ttl_s: int = 3600
    """Life of a service account's token; short, because its key makes new ones."""
    node_token_ttl_s: int = 3600
    """Life of a node's token."""
    machine_access_ttl_max_s: int = 600
    """The longest life of an SSH certificate."""
    heartbeat_interval_s: float = 5.0
    """How often a node says it is there."""
    node_lost_after_s: float = 20.0
    """A node silent for this long counts as lost."""
    task_ttl_s: int = 120
    """A node task not done by then fails."""
    idempotency_kept_s: int = 48 * 3600
    """How long an answer can be replayed."""
    sweep_interval_s: float = 1.0
    """How often deadlines and silence are looked at even if nobody woke the loop."""
