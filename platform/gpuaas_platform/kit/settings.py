"""The settings of the platform. `main` builds them once and passes them to `server`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    data_dir: Path
    """Folder of keys, certificates and the embedded database; readable only by the owner."""
    database_url: str = ""
    """`postgresql://…` URL of the database; empty: SQLite in `data_dir`."""
    accept_clock: bool = False
    """If true, the server starts although its clock is behind the newest row of the audit trail, or differs from the
    clock of PostgreSQL."""
    accept_data_loss: bool = False
    """If true, the server starts although the database lacks rows that were signed."""
    tls_certificate_file: Path | None = None
    """File with the operator's own TLS certificate and its chain; None: the platform's authority signs certificates."""
    tls_key_file: Path | None = None
    """File with the private key of the certificate in `tls_certificate_file`."""
    tls_authority_file: Path | None = None
    """File with the certificate authority of `tls_certificate_file`, which clients pin."""
    region: str = "local"
    """Name of the region of this platform; the first part of every resource name."""
    session_ttl_s: int = 12 * 3600
    """Lifetime of a user's token."""
    oidc_issuer: str = ""
    """URL of the identity provider that users can sign in through; empty: none."""
    oidc_client_id: str = ""
    """Client id of this platform at the identity provider."""
    oidc_client_secret_file: Path | None = None
    """File with the secret of the client at the identity provider; None for a public client."""
    oidc_redirect_url: str = ""
    """URL to which the identity provider sends the browser back. It must be registered with the provider."""
    service_account_token_ttl_s: int = 3600
    """Lifetime of a service account's token. It is short, because the account's key can get new tokens."""
    node_token_ttl_s: int = 3600
    """Lifetime of a node's token."""
    machine_access_ttl_max_s: int = 600
    """Longest lifetime of an SSH certificate."""
    machine_session_s_max: int = 8 * 3600
    """Longest duration of a user's SSH session. A session for an operation lasts as long as the lease."""
    sealed: bool = False
    """If true, custody is sealed after a start, until an operator gives the passphrase of its key."""
    custody_key_file: Path | None = None
    """File with the key of custody, provided from outside (systemd credential); None: a file in `data_dir`."""
    vault_address: str = ""
    """URL of the Vault or OpenBao server that stores secret values; empty: the platform's own custody."""
    vault_token_file: Path | None = None
    """File with the token for Vault. It is read again when Vault refuses the token."""
    vault_mount: str = "secret"
    """Mount path of Vault's KV version 2 engine."""
    vault_prefix: str = "gpuaas"
    """Path in Vault under which all secrets of this platform are stored."""
    vault_ca_file: Path | None = None
    """File with the authority of Vault's TLS certificate; None: the authorities that the system trusts."""
    heartbeat_interval_s: float = 5.0
    """How often a node sends a heartbeat."""
    heartbeats_missed_max: int = 4
    """A node is lost after this many missing heartbeats in a row."""
    posix_uid_first: int = 20_000
    """First user number that people get on machines. Numbers are given once, separately in each organisation."""
    posix_uid_last: int = 59_999
    """Last user number that people get."""
    task_ttl_s: int = 120
    """A node task that has no result after this time expires."""
    node_tasks_kept_s: int = 7 * 86400
    """How long ended node tasks are kept."""
    agent_trial_s: int = 60
    """Time in which a new agent must send a heartbeat; otherwise the old agent stays."""
    agent_upgrade_ttl_s: int = 600
    """An agent upgrade that has no result after this time expires."""
    agent_release_keys: tuple[str, ...] = ()
    """Public keys in PEM form. A release of the agent is registered only if one of them signed it; none: no release is.
    Nodes verify releases with their own keys, which operators pin on them."""
    agent_release_approvals: int = 1
    """How many other people must approve a release before it can be installed: 0 or 1."""
    node_reuse: bool = True
    """Whether a project may get a node again that it used before, although the node was not sanitised since."""
    sanitise_url: str = ""
    """URL of the provisioner that reinstalls nodes between projects; empty: operators do it and declare it."""
    sanitise_token_file: Path | None = None
    """File with the bearer token for the provisioner. It is read for each call."""
    sanitise_ca_file: Path | None = None
    """File with the authority of the provisioner's TLS certificate; None: the authorities that the system trusts."""
    sanitise_after_s: int = 600
    """How long a released node waits for its last project before the provisioner reinstalls it."""
    sanitise_timeout_s: int = 3600
    """A node that is not reinstalled and enrolled again after this time is quarantined."""
    sanitise_poll_s: float = 5.0
    """How often the provisioner is asked for the state of its attempts."""
    operation_log_kept_s: int = 7 * 86400
    """How long lines of controllers' logs are kept."""
    log_url_template: str = ""
    """URL of a page of the log system, with `{correlation_id}`; empty: `triage` shows no link. See `kit.links`."""
    trace_url_template: str = ""
    """URL of a page of the trace system, with `{trace_id}`; empty: `triage` shows no link."""
    controllers_kept_s: int = 7 * 86400
    """How long a controller that no longer responds is listed."""
    idempotency_kept_s: int = 48 * 3600
    """How long the answer to a mutation is kept for repeats with the same idempotency key."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of reverse proxies. Only they can state the address of a caller, which is used for limits, audit rows
    and SSH certificates."""
    forwarded_header: str = "x-forwarded-for"
    """Header in which the trusted proxies state the caller's address: `x-forwarded-for` or `forwarded`. The other one
    is ignored."""
    metrics_open: bool = False
    """If true, anyone can read /metrics; else only this machine, and callers with `record.platform_event.read`."""
    rate_limit_per_s: float = 200.0
    """Average requests per second to the API that a caller may send to one process; 0: no limit. A caller is a user or
    a service account; without a valid token, an IPv4 address or an IPv6 /64. A long poll counts once."""
    rate_limit_burst: int = 400
    """Requests that a caller may send at once after a pause."""
    node_rate_limit_per_s: float = 50.0
    """Average requests per second that a node may send, per process; 0: no limit."""
    node_rate_limit_burst: int = 100
    artifact_bytes_max: int = 2 * 1024**3
    """Size limit of an artifact, uploaded or fetched."""
    artifact_quota_bytes: int = 20 * 1024**3
    """Largest size of all artifacts of one organisation, also without any policy; 0: no limit."""
    app_artifact_quota_bytes: int = 20 * 1024**3
    """Largest size of all shared artifacts of one app, which its publishers upload; 0: no limit."""
    disk_reserve_bytes: int | None = None
    """Free space in the file system of `data_dir` that uploads and fetches of artifacts must leave; None: 1 GiB, or 5 %
    of the file system if that is less."""
    artifact_fetch_s_max: float = 600.0
    """A source that has not sent the whole artifact after this time counts as unreachable."""
    artifact_internal_hosts: tuple[str, ...] = ()
    """Hosts with private or loopback addresses that artifacts may be fetched from; other such hosts are refused."""
    artifact_kept_s: int = 3600
    """How long stored content is kept after no artifact needs it any more."""
    artifact_sweep_interval_s: float = 60.0
    """How often the stored content is searched for content that no artifact needs."""
    log_level: str = "info"
    """Lowest level of the log lines that are written: debug, info, warning or error."""
    otlp_endpoint: str = ""
    """URL of an OpenTelemetry collector that receives spans over HTTP; empty: no spans are sent."""
    event_retention_s: float = 7 * 86400
    """How long events are kept. A request with an older cursor gets status 410."""
    stream_silence_s_max: float = 15.0
    """A stream without new events sends a bookmark at least this often."""
    stream_recheck_s: float = 3.0
    """How often the platform checks again whether the caller of an open stream may still see it."""
    streams_per_caller_max: int = 500
    """How many streams and downloads one caller may have open on this server at the same time; 0: no limit."""
    audit_head_interval_s: float = 60.0
    """How often changed audit chains get a new signed head. Rows after the last head are not protected by one yet."""
    ready_interval_s: float = 1.0
    """`/readyz` writes to the store at most this often; probes in between get the last result."""
    sweep_interval_s: float = 1.0
    """How often each loop checks deadlines, even if it is not woken."""

    @property
    def sqlite_path(self) -> Path:
        """Path of the embedded database."""
        return self.data_dir / "gpuaas.sqlite"

    @property
    def unfinished_restore_path(self) -> Path:
        """Path of the file that exists while a restore writes into `data_dir`. No server starts beside it."""
        return self.data_dir / "restore-unfinished"

    @property
    def node_lost_after_s(self) -> float:
        return self.heartbeat_interval_s * self.heartbeats_missed_max
