"""The keys that the daemons of a fake cluster have read, and whether they accept each other, by the rules of Slurm."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuaas_app_slurm.workload import key_sets, keys

HEADS = ("slurmctld", "slurmdbd")


@dataclass(frozen=True)
class Loaded:
    """What one daemon has read at its start."""

    signs_with: bytes
    name: str = ""
    """The name of the key in its messages; empty without a key set."""
    by_name: Mapping[str, bytes] = field(default_factory=dict)

    def accepts(self, other: "Loaded") -> bool:
        if not self.by_name:
            return other.signs_with == self.signs_with
        key = self.by_name.get(other.name) if other.name else self.signs_with
        return key == other.signs_with


@dataclass
class FakeKeys:
    daemons: dict[tuple[str, str], Loaded] = field(default_factory=dict)
    """Machine and unit -> what the daemon has read."""
    refused: list[str] = field(default_factory=list)
    """Pairs of daemons that could not talk to each other after a start."""

    def start(self, machine: str, unit: str, files: Mapping[str, bytes]) -> None:
        if unit not in (*HEADS, "slurmd") or keys.SLURM_KEY not in files:
            return
        self.daemons[machine, unit] = _loaded(files)
        for head, node in self._pairs():
            if not (self.daemons[head].accepts(self.daemons[node]) and self.daemons[node].accepts(self.daemons[head])):
                self.refused.append(f"{' '.join(head)} and {' '.join(node)} after the start of {unit} on {machine}")

    def stop(self, machine: str, units: Iterable[str]) -> None:
        for unit in units:
            self.daemons.pop((machine, unit), None)

    def is_accepted(self, machine: str) -> bool:
        """Return whether slurmctld accepts a message from this machine. Without slurmd there, nothing is known."""
        node = self.daemons.get((machine, "slurmd"))
        heads = [loaded for (_, unit), loaded in self.daemons.items() if unit == "slurmctld"]
        return node is None or all(head.accepts(node) for head in heads)

    def _pairs(self) -> list[tuple[tuple[str, str], tuple[str, str]]]:
        heads = [name for name in self.daemons if name[1] in HEADS]
        return [(head, name) for head in heads for name in self.daemons if name != head]


def _loaded(files: Mapping[str, bytes]) -> Loaded:
    content = files.get(keys.KEY_SET)
    if content is None:
        return Loaded(files[keys.SLURM_KEY])
    read = key_sets.decode(content)
    default = next(key for key in read.keys if key.use == "default")
    return Loaded(default.content, default.kid, {key.kid: key.content for key in read.keys})
