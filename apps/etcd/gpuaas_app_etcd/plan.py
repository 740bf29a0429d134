"""Decisions about the members of etcd. Pure: facts in, facts out."""

from collections.abc import Iterable, Mapping

import msgspec

CLIENT_PORT, PEER_PORT = 2379, 2380


class Peer(msgspec.Struct, frozen=True):
    """A member as etcd lists it. Before its first start it has no name."""

    id: int = msgspec.field(name="ID")
    name: str = ""
    urls: tuple[str, ...] = msgspec.field(name="peerURLs", default=())
    learner: bool = msgspec.field(name="isLearner", default=False)


def url(address: str, port: int = PEER_PORT) -> str:
    """Return where other members, or clients, reach a member."""
    return f"https://[{address}]:{port}" if ":" in address else f"https://{address}:{port}"


def find(peers: Iterable[Peer], name: str, address: str) -> Peer | None:
    """Return the member of this name, or the one at this address that has not started yet."""
    return next((peer for peer in peers if peer.name == name or (not peer.name and url(address) in peer.urls)), None)


def stale(peers: Iterable[Peer], mine: Peer | None, *, has_data: bool) -> list[Peer]:
    """Return the members to remove before a machine joins: its own one if its data is lost, and learners of joins that
    failed. They never started and have no vote, but etcd accepts no second learner."""
    failed = [peer for peer in peers if peer.learner and not peer.name and peer != mine]
    return [mine, *failed] if mine is not None and mine.name and not has_data else failed


def initial_cluster(peers: Iterable[Peer], unnamed: Mapping[str, str]) -> str:
    """Return all members as etcd takes them at its first start. `unnamed`: URL and name of those without a name."""
    pairs = {peer.urls[0]: peer.name for peer in peers if peer.name} | dict(unnamed)
    return ",".join(f"{name}={at}" for at, name in sorted(pairs.items()))


def version_refusal(before: str, after: str) -> str:
    """Return why etcd cannot change its version so; empty if it can. Within a minor version both directions work."""
    old, new = (tuple(int(part) for part in text.split(".")[:2]) for text in (before, after))
    if new < old:
        return f"etcd {after} cannot read the data of {before}; restore a snapshot into a new instance instead"
    is_next = new[0] == old[0] and new[1] - old[1] <= 1
    return "" if is_next else f"etcd {before} must change to each minor version between it and {after} in turn"
