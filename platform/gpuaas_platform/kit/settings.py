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
    oidc_issuer: str = ""
    """Identity provider people can sign in through; empty: none."""
    oidc_client_id: str = ""
    """The client id of this platform at the provider."""
    oidc_client_secret_file: Path | None = None
    """File with the client's secret; None for a public client."""
    oidc_redirect_url: str = ""
    """Where the provider sends the browser back; registered with the provider."""
    service_account_token_ttl_s: int = 3600
    """Life of a service account's token; short, because its key makes new ones."""
    node_token_ttl_s: int = 3600
    """Life of a node's token."""
    machine_access_ttl_max_s: int = 600
    """The longest life of an SSH certificate."""
    machine_session_s_max: int = 8 * 3600
    """The longest life of a person's SSH session; an operation's lasts as long as its lease."""
    sealed: bool = False
    """Secrets stay closed after a start until an operator gives the passphrase of the key."""
    custody_key_file: Path | None = None
    """The key of all secrets, given from outside; None: a file in `data_dir`."""
    vault_address: str = ""
    """Vault or OpenBao that keeps the values; empty: the platform's own store."""
    vault_token_file: Path | None = None
    """File with the token for it; read again when the token is refused."""
    vault_mount: str = "secret"
    """Where the KV version 2 engine is mounted."""
    vault_prefix: str = "gpuaas"
    """Path below which every secret of this platform is stored."""
    vault_ca_file: Path | None = None
    """Authority of its certificate; None: those the system trusts."""
    heartbeat_interval_s: float = 5.0
    """How often a node sends a heartbeat."""
    heartbeats_missed_max: int = 4
    """A node that misses this many in a row counts as lost."""
    task_ttl_s: int = 120
    """A node task not done by then fails."""
    node_tasks_kept_s: int = 7 * 86400
    """How long ended tasks can be looked at."""
    agent_trial_s: int = 60
    """A new agent that has not reported by then does not take the old one's place."""
    agent_upgrade_ttl_s: int = 600
    """An agent upgrade not done by then fails."""
    controllers_kept_s: int = 7 * 86400
    """How long a controller that no longer responds is listed."""
    idempotency_kept_s: int = 48 * 3600
    """How long an answer can be replayed."""
    rate_limit_per_s: float = 200.0
    """Requests a caller may send in the long run, per process; 0 sets no limit. A long poll counts once."""
    rate_limit_burst: int = 400
    """Requests a caller that was silent may send at once."""
    node_rate_limit_per_s: float = 50.0
    """The same for each node."""
    node_rate_limit_burst: int = 100
    artifact_bytes_max: int = 2 * 1024**3
    """The largest artifact the platform takes, uploaded or fetched."""
    artifact_fetch_s_max: float = 600.0
    """A source that has not sent everything by then counts as unreachable."""
    artifact_internal_hosts: tuple[str, ...] = ()
    """Hosts on private or loopback addresses that artifacts may be fetched from; all others there are refused."""
    artifact_kept_s: int = 3600
    """How long content is kept that no artifact needs any more."""
    artifact_sweep_interval_s: float = 60.0
    """How often the stored content is searched for content that no artifact needs."""
    log_level: str = "info"
    """debug, info, warning or error."""
    otlp_endpoint: str = ""
    """Where an OpenTelemetry collector takes spans over HTTP; empty sends none."""
    event_retention_s: float = 7 * 86400
    """How long events are kept; a cursor older than that is answered with 410."""
    stream_silence_s_max: float = 15.0
    """A stream without events sends a bookmark before it has been silent for this long."""
    stream_recheck_s: float = 3.0
    """How often it is asked again whether the caller of an open stream may still see it."""
    audit_head_interval_s: float = 60.0
    """How often audit chains that moved get a signed head; what happened since the last one is not vouched for yet."""
    sweep_interval_s: float = 1.0
    """How often each loop checks deadlines, even if it is not woken."""

    @property
    def sqlite_path(self) -> Path:
        """The embedded database."""
        return self.data_dir / "gpuaas.sqlite"

    @property
    def node_lost_after_s(self) -> float:
        return self.heartbeat_interval_s * self.heartbeats_missed_max
