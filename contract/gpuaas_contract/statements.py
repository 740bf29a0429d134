"""Statements: what a remove or a decommission removed, what it left and why, signed by the platform."""

from gpuaas_contract import errors
from gpuaas_contract.lifecycles import MemberStatus, OperationStatus
from gpuaas_contract.operations import Evidence, Leftover, OperationKind
from gpuaas_contract.paths import API, OPERATION
from gpuaas_contract.wire import Timestamp, Wire

STATED_KINDS = frozenset({"remove", "decommission"})
"""Kinds of operations that have a statement."""
_HEADER = b"gpuaas-statement-1\n"


def signed_bytes(document: str) -> bytes:
    """Return the bytes that the signature of a statement covers. The header keeps other signatures of the key apart."""
    return _HEADER + document.encode()


class StatedMember(Wire):
    """What happened to one member, and what its machine still has of it."""

    member_id: str
    component_key: str
    node_name: str
    allocation_id: str
    status: MemberStatus
    """`removed`, or `tombstoned` if the member was given up and nothing was done on its machine."""
    removed: list[str]
    """What the app's controller removed from the machine, as it observed."""
    left: list[Leftover]
    """What is still on the machine, and why."""
    evidence: Evidence | None = None
    """The last observation of the member's work before it was removed."""


class StatedPart(Wire):
    """What the platform itself gave the instance: machine access, secrets, artifacts on machines, allocations."""

    what: str
    removed: int
    """How many are gone, as the platform has recorded."""
    left: list[Leftover]
    """What still exists, and why."""


class Statement(Wire):
    """What a remove or a decommission removed, and what it left."""

    operation_id: str
    kind: OperationKind
    status: OperationStatus
    """How the operation ended."""
    reason: str
    force: bool
    """Requested with `force`: holds, the disruption budget and missing evidence were ignored."""
    requested_by: str
    org_id: str
    project_id: str
    instance_id: str
    instance_name: str
    app_slug: str
    app_version: str
    started_at: Timestamp | None
    ended_at: Timestamp | None
    members: list[StatedMember]
    """The members that the operation removed or was to remove."""
    platform: list[StatedPart]
    """What the platform itself removed and kept. Access and secrets end within seconds after the operation."""
    issued_at: Timestamp
    """When the statement was made: `platform` is what was recorded at this time."""


class SignedStatement(Wire):
    """A statement with the platform's signature."""

    statement: Statement
    document: str
    """The statement as JSON, exactly as it was signed."""
    signature: str
    """Ed25519 signature of the line `gpuaas-statement-1` and `document`, in base64."""
    key_id: str
    """Id of the key that signed: the first 16 digits of the SHA-256 of the public key (DER)."""


class StatementKey(Wire):
    """The public key of this platform's statements."""

    key_id: str
    public_key_pem: str


STATEMENT_GET = OPERATION.row(
    "/statement",
    "apps.operation.statement",
    "Get what a remove or a decommission removed and left, signed",
    "Possible when the operation has ended. A later statement of the same operation has another time, and can have "
    "less that is left.",
).get(SignedStatement, "apps.operation.read", errors=(errors.StatementUnavailable,))
STATEMENT_KEY_GET = API.row(
    "/statement-key",
    "apps.statement_key.get",
    "Get the public key that verifies this platform's statements",
    "It needs no token. Store it apart from the statements: a statement is verified with a key that you have already.",
).get(StatementKey, audience="public")
