"""The HTTP hook of the lab's provisioner, without machines: the test decides what it answers."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpuaas_lab import provisioner

TOKEN = "the token of the hook"


@dataclass
class Hook(provisioner.Attempts):
    url: str = ""
    token_file: Path = Path()
    orders: list[provisioner.Order] = field(default_factory=list)
    """Every order that arrived, repeats included."""
    answers: dict[str, provisioner.Answer] = field(default_factory=dict)

    def begin(self, order: provisioner.Order) -> provisioner.Answer:
        self.orders.append(order)
        return self.answers.setdefault(order.attempt_id, {"state": "pending"})

    def state(self, attempt_id: str) -> provisioner.Answer | None:
        return self.answers.get(attempt_id)

    def answer(self, state: str, reason: str = "") -> None:
        """Answer this for the attempt of the last order."""
        self.answers[self.orders[-1].attempt_id] = {"state": state, "reason": reason}


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Hook]:
    hook = Hook(token_file=folder / "hook.token")
    hook.token_file.write_text(f"{TOKEN}\n")
    with provisioner.serve("127.0.0.1", 0, TOKEN, hook) as server:
        hook.url = f"http://127.0.0.1:{server.server_address[1]}/sanitise"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hook
        finally:
            server.shutdown()
            thread.join()
