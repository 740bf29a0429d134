"""The queue, the reservations and the outputs of a fake Slurm: what people's commands on them answer."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuaas_sdk.machine import Ran

OK = Ran(0, "", "")


@dataclass
class FakeQueue:
    """Answers commands that the app runs for people. Jobs are those of the fake Slurm."""

    submitted: list[tuple[str, ...]] = field(default_factory=list)
    """The options of each job that was submitted."""
    refuses: str = ""
    """What sbatch prints instead of an id."""
    rows: dict[str, str] = field(default_factory=dict)
    """Job id -> its row in accounting: user, state, nodes, path of the output."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Path -> content of a job's output."""
    forbidden: set[str] = field(default_factory=set)
    """Paths that the owner of the job may not read."""
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    features: dict[str, list[str]] = field(default_factory=dict)

    def submit(self, options: Sequence[str]) -> Ran:
        if self.refuses:
            return Ran(1, "", self.refuses)
        self.submitted.append(tuple(options))
        return Ran(0, f"{100 + len(self.submitted)}\n", "")

    def output(self, path: str, lines: str) -> Ran:
        if path in self.forbidden:
            return Ran(1, "", f"you may not read {path}")
        if path not in self.outputs:
            return Ran(44, "", f"there is no file {path} yet")
        # As `tail`: one character ends a line. For `splitlines` there are ten.
        written = self.outputs[path].removesuffix("\n").split("\n")
        kept = written[-int(lines) :] if self.outputs[path] else []
        return Ran(0, "".join(f"{line}\n" for line in kept), "")

    def accounting(self, job_id: str, delimiter: str) -> Ran:
        """Return the row of a job as `sacct -p` prints it: the delimiter is also after the last field."""
        fields = self.rows[job_id].split("|", 3) if job_id in self.rows else []
        return Ran(0, "".join(f"{field}{delimiter}" for field in fields) + "\n" if fields else "", "")

    def reserve(self, words: Sequence[str]) -> Ran:
        given = dict(word.split("=", 1) for word in words)
        if given["reservationname"] in self.reservations:
            return Ran(1, "", "Error creating the reservation: Duplicate reservation name")
        now = int(time.time())
        self.reservations[given["reservationname"]] = {
            "name": given["reservationname"],
            "users": given["users"],
            "node_list": given.get("nodes", ""),
            "node_count": int(given.get("nodecnt", 1)),
            "start_time": {"set": True, "number": now},
            "end_time": {"set": True, "number": now + 60 * int(given["duration"])},
            "flags": [given["flags"].upper()] if "flags" in given else [],
        }
        return OK

    def remove(self, name: str) -> Ran:
        if self.reservations.pop(name, None) is None:
            return Ran(1, "", "Requested reservation is invalid")
        return OK

    def shown_reservations(self) -> Ran:
        return Ran(0, json.dumps({"reservations": list(self.reservations.values())}), "")


def matches(job: dict[str, Any], filters: Sequence[str]) -> bool:
    """Return whether squeue with these options lists the job."""
    given = dict(option.split("=", 1) for option in filters)
    jobs = given.get("--jobs", "").split(",") if given.get("--jobs") else []
    state = given.get("--states", "all")
    return (
        given.get("--user", job["user_name"]) == job["user_name"]
        and given.get("--partition", job["partition"]) == job["partition"]
        and (not jobs or str(job["job_id"]) in jobs)
        and (state == "all" or state.upper() in job["job_state"])
    )


def comment_of(options: Sequence[str]) -> str:
    return next((match[1] for option in options if (match := re.match("--comment=(.*)", option))), "")
