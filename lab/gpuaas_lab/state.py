"""The stored state of a lab: one folder per lab with lab.json. Read and written by `lab.py` only."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuaas_lab import errors, host, plan, shell


@dataclass(frozen=True)
class Store:
    """The folders of one lab below the state folder that all labs of the host share."""

    state: Path
    lab: str

    @property
    def folder(self) -> Path:
        return self.state / "labs" / self.lab

    @property
    def packages(self) -> Path:
        """The folder that machines see as /srv/packages."""
        return self.folder / "packages"

    @property
    def shared(self) -> Path:
        """The folder that every machine of the lab sees as /shared. It outlives machines and ends with the lab."""
        return self.folder / "shared" / "files"

    @property
    def machines(self) -> Path:
        return self.folder / "machines"

    def machine_folder(self, name: str) -> Path:
        return self.machines / name

    def machine_folders(self) -> list[str]:
        return sorted(entry.name for entry in self.machines.iterdir()) if self.machines.is_dir() else []

    @contextmanager
    def locked(self) -> Iterator[None]:
        with shell.locked(host.LOCKS / self.lab, f"lab {self.lab}"):
            yield

    def load(self) -> plan.LabRecord | None:
        path = self.folder / "lab.json"
        try:
            return plan.from_json(json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as reason:
            raise errors.LabError(f"cannot read {path}: {reason!r}", f"repair or delete {path}") from reason

    def save(self, lab: plan.LabRecord) -> None:
        shell.write_atomically(self.folder / "lab.json", json.dumps(plan.to_json(lab), indent=1) + "\n")

    def delete(self, folder: Path) -> None:
        """Move a folder to the trash, then delete it, so that a partly deleted folder is never used."""
        self.empty_trash()
        if folder.exists():
            host.unmount(host.mounts_under(folder))
            host.make_private(self._trash)
            folder.rename(self._trash / folder.name)
            self.empty_trash()

    def empty_trash(self) -> None:
        host.remove_tree(self._trash)

    @property
    def _trash(self) -> Path:
        return self.state / "trash" / self.lab

    def other_labs(self) -> list[plan.LabRecord]:
        names = [entry.name for entry in (self.state / "labs").glob("*") if entry.name != self.lab]
        records = [Store(self.state, name).load() for name in sorted(names)]
        return [record for record in records if record is not None]
