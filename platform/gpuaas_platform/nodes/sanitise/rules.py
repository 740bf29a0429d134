"""Pure: which projects may get a node, and what makes it clean again. What the old machine reports never counts."""

import datetime

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.capacity import Node, SanitiseAttempt
from gpuaas_contract.lifecycles import NodeTenancy

from gpuaas_platform.nodes.sanitise.port import Progress

RELEASED = "the node's last allocation was released"


def assigned(node: Node, allocation_id: str, project_id: str) -> Node:
    """Return the node, marked as used by the project, whose members may now have become root on the machine."""
    used = _moved(node, "used", "")
    return msgspec.structs.replace(used, allocation_id=allocation_id, used_by_project_id=project_id)


def used_by_unknown(node: Node) -> Node:
    """Return the node as used by a project that is not known, so that no project gets it before it was sanitised."""
    if node.tenancy not in ("clean", "used"):
        return node
    return msgspec.structs.replace(node, tenancy="used", used_by_project_id="")


def released(node: Node, now: datetime.datetime) -> Node:
    return msgspec.structs.replace(node, allocation_id=None, released_at=now)


def begun(node: Node, attempt_id: str, *, reason: str, now: datetime.datetime, timeout_s: int) -> Node:
    """Return the node at the start of an attempt. Its identity ends in the same transaction."""
    _check_free(node)
    if node.tenancy == "sanitising":
        raise errors.Conflict(f"Node {node.name} is being sanitised.", fix=f"gpuaas node get {node.name}")
    attempt = SanitiseAttempt(
        attempt_id=attempt_id,
        reason=reason,
        began_at=now,
        ends_at=now + datetime.timedelta(seconds=timeout_s),
    )
    return msgspec.structs.replace(_moved(node, "sanitising", reason), sanitising=attempt, revision=node.revision + 1)


def check_enrolment(known: Node | None, attempt_id: str, *, has_new_key: bool) -> None:
    """Refuse the enrolment of a node that is being sanitised, unless it can only be the reinstalled machine.

    `attempt_id` is the attempt that the enrolment token was made for; empty for a token of an operator."""
    attempt = known.sanitising if known else None
    if attempt_id != (attempt.attempt_id if attempt else ""):
        message = "The node is being sanitised: only a token of its provisioner admits it."
        raise errors.CredentialsInvalid(
            message if attempt else "This enrolment token belongs to an attempt to sanitise the node that has ended.",
            fix="Read the state of the node: gpuaas node get NAME",
        )
    if attempt and not has_new_key:
        raise errors.CredentialsInvalid(
            "The machine has the key that it had before, so it was not reinstalled.",
            fix="Have the provisioner erase the disks of the machine and install it again.",
        )


def enrolled(node: Node) -> Node:
    """Return the node after it enrolled. In an attempt this is one of two proofs; the loop waits for the other one."""
    if node.sanitising is None:
        return node
    attempt = msgspec.structs.replace(node.sanitising, is_enrolled=True)
    return msgspec.structs.replace(node, sanitising=attempt)


def progressed(node: Node, progress: Progress, by: str, now: datetime.datetime) -> Node:
    """Return the node after an answer of the provisioner; the same node if nothing changed."""
    attempt = node.sanitising
    if attempt is None:
        return node
    if progress.state == "failed":
        return _moved(node, "quarantined", f"the provisioner failed: {progress.reason or 'no reason given'}")
    if progress.state == "done":
        attempt = msgspec.structs.replace(attempt, is_installed=True)
    if attempt.is_installed and attempt.is_enrolled:
        return _clean(node, by, "", now)
    if now >= attempt.ends_at:
        return _moved(node, "quarantined", f"not sanitised in time: {_missing(attempt, progress)}")
    return msgspec.structs.replace(node, sanitising=attempt)


def news(node: Node) -> str:
    """Return the sentence of the event after an answer of the provisioner changed the node."""
    if node.tenancy == "quarantined":
        return f"quarantined: {node.tenancy_reason}"
    return f"sanitised by {node.sanitised_by}" if node.tenancy == "clean" else "the provisioner has reinstalled it"


def declared(node: Node, user_id: str, reason: str, now: datetime.datetime) -> Node:
    """Return the node, marked as clean because an operator declared it clean.

    The agent must have a new key, because the last tenant may have a copy of the old one."""
    _check_free(node)
    if node.released_at is not None and node.enrolled_at <= node.released_at:
        raise errors.Conflict(
            f"Node {node.name} has had its key since before the last release, and its tenant may have a copy.",
            fix=f"Reinstall the machine and enrol it again (gpuaas node token {node.name}), then repeat this.",
        )
    clean = _clean(node, f"operator:{user_id}", reason, now)
    return msgspec.structs.replace(clean, revision=node.revision + 1)


def _clean(node: Node, by: str, reason: str, now: datetime.datetime) -> Node:
    clean = _moved(node, "clean", reason)
    return msgspec.structs.replace(clean, used_by_project_id="", sanitised_at=now, sanitised_by=by)


def _moved(node: Node, tenancy: NodeTenancy, reason: str) -> Node:
    lifecycles.check_move(node.name, lifecycles.NODE_TENANCY, node.tenancy, tenancy)
    return msgspec.structs.replace(node, tenancy=tenancy, tenancy_reason=reason, sanitising=None)


def _missing(attempt: SanitiseAttempt, progress: Progress) -> str:
    if attempt.is_installed:
        return "the machine is reinstalled but has not enrolled again"
    reason = f" ({progress.reason})" if progress.reason else ""
    return f"the provisioner reports {progress.state}{reason}"


def _check_free(node: Node) -> None:
    if node.admin_state == "retired":
        raise errors.Conflict(f"Node {node.name} is retired.")
    if node.allocation_id is not None:
        fix = f"gpuaas node drain {node.name}, wait until its owner has released it, then repeat this."
        raise errors.Conflict(f"Node {node.name} still has allocation {node.allocation_id}.", fix=fix)
