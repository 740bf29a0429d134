"""A deployed Slurm cluster of `gpuaas up`, and what its person sees and types while the app looks after it."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

BIN = Path(sys.executable).parent
_FIX = re.compile(r"Fix(?: by hand)?: (.*)$")

Member = tuple[str, str]
"""Node and role."""


@dataclass(frozen=True)
class Change:
    """A new status of a member."""

    at: float
    member: Member
    status: str
    reason: str

    @property
    def fix(self) -> str:
        """The command with which the fix ends; empty if there is none."""
        printed = _FIX.search(self.reason)
        return printed[1].rsplit(": ", 1)[-1] if printed else ""


@dataclass
class Cluster:
    """`gpuaas up` with three machines."""

    home: Path
    lab_name: str
    changes: list[Change] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUAAS_")}
        return {**kept, "PATH": f"{BIN}:{os.environ['PATH']}", "GPUAAS_HOME": str(self.home), "NO_COLOR": "1"}

    def gpuaas(self, *words: str, check: bool = True, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [BIN / "gpuaas", *words], env=self.environment(), capture_output=True, text=True, timeout=timeout_s
        )
        if check:
            assert done.returncode == 0, f"gpuaas {' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done

    def typed(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line as a person types it in a shell."""
        done = subprocess.run(
            ["bash", "-c", line], env=self.environment(), capture_output=True, text=True, timeout=300, check=False
        )
        sys.stdout.write(f"$ {line}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
        return done

    def lab(self, command: str, node: str, *words: str) -> str:
        return self.gpuaas("lab", command, node, "--lab", self.lab_name, *(["--", *words] if words else [])).stdout

    def on(self, node: str, script: str) -> str:
        """Run a script as root on a machine, without SSH."""
        return self.lab("exec", node, "bash", "-c", script)

    def follow(self) -> subprocess.Popen[str]:
        """Note each change of a member from its event, so that one that is repaired at once is not missed."""
        command = [str(BIN / "gpuaas"), "events", "--instance", "slurm", "--after", "0", "-o", "json"]
        events = subprocess.Popen(command, env=self.environment(), stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._note, args=(events,), daemon=True).start()
        return events

    def _note(self, events: subprocess.Popen[str]) -> None:
        assert events.stdout is not None
        for line in events.stdout:
            event = json.loads(line)
            if event["type"].startswith("apps.member."):
                change = event["payload"]
                member = (change["node_name"], change["component_key"])
                self.changes.append(Change(time.monotonic(), member, change["status"], change["status_reason"]))

    def until(self, member: Member, status: set[str], text: str, *, since: float, limit_s: float) -> Change:
        """Return the first change since then to one of these statuses with this text in its reason."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            for change in self.since(member, since):
                if change.status in status and text in change.reason:
                    passed = f"{change.at - since:.1f} s"
                    sys.stdout.write(f"{'/'.join(member)} {change.status} after {passed}: {change.reason}\n")
                    return change
            time.sleep(0.1)
        raise AssertionError(f"{member} was never {status} with {text!r} within {limit_s} s: {self.changes[-20:]}")

    def reason(self, member: Member) -> str:
        """Return the present reason of a member. There is no event if only the reason changes."""
        listed = json.loads(self.gpuaas("get", "members", "--instance", "slurm", "-o", "json").stdout)["items"]
        return next(str(row["status_reason"]) for row in listed if (row["node_name"], row["component_key"]) == member)

    def newest(self) -> dict[Member, Change]:
        """Return the last change of each member."""
        return {change.member: change for change in list(self.changes)}

    def since(self, member: Member, then: float) -> list[Change]:
        return [change for change in list(self.changes) if change.member == member and change.at >= then]
