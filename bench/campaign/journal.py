"""What a campaign did, line by line with the time, and the violations that it found, each with a line to look at."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Violation:
    rule: str
    text: str
    line: int
    """The last line of the log when it happened, or when it was found."""


@dataclass
class Journal:
    began_s: float = field(default_factory=time.time)
    lines: int = 0
    times: list[float] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        """Print a line of the log and count its kind."""
        now = time.time()
        self.lines += 1
        self.times.append(now)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        clock = time.strftime("%H:%M:%S", time.gmtime(now))
        print(f"{self.lines:5} {clock} {now - self.began_s:7.1f} s  {kind:9} {text}", flush=True)

    def violated(self, rule: str, text: str, at_s: float | None = None) -> None:
        """Record a violation. `at_s` is when it happened; without it, it is found now."""
        line = self.lines if at_s is None else sum(moment <= at_s for moment in self.times)
        self.violations.append(Violation(rule, text, line))
        self.note("VIOLATION", f"{rule}: {text} (after line {line})")
