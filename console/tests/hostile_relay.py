"""A relay in front of the platform that makes every text of people and apps hostile: each contains a script."""

import contextlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import httpx

SCRIPT = "<script>alert(1)</script>"
TEXTS = frozenset(
    re.findall(
        r"\w+",
        "reason status_reason message fix name instance_name node_name address holder event summary display_name title "
        "error meaning rule explanation note notes url line text version observed_version decision_reason "
        "state_reason work_id owner running before after effect taken_by requested_by changed_by irreversible",
    )
)
"""Fields with texts that people, apps and machines choose."""
FREE = {"adapter_detail", "payload", "details", "fields", "inputs", "result", "rows", "paths", "columns"}
"""Fields of any form: every text in them, and every name, is chosen by others."""
_KEPT = ("authorization", "content-type", "x-idempotency-key", "if-match", "accept")


def hostile(value: Any, *, free: bool = False) -> Any:
    """Return an answer of the platform with a script in each text."""
    if isinstance(value, list):
        return [hostile(item, free=free) for item in value]
    if isinstance(value, dict):
        is_exit = "permitted" in value or "taken_by" in value  # its name is one of those that the contract has
        return {key: item if is_exit and key == "name" else _field(key, item, free=free) for key, item in value.items()}
    return f"{value}{SCRIPT}" if free and isinstance(value, str) else value


def _field(key: str, value: Any, *, free: bool) -> Any:
    if key in TEXTS and isinstance(value, str) and value:
        return f"{value}{SCRIPT}"
    return hostile(value, free=free or key in FREE or (key in TEXTS and isinstance(value, list)))


@contextlib.contextmanager
def relaying(server: str) -> Iterator[str]:
    """Yield the address of the relay. What people write is passed on as it is."""
    with httpx.Client(base_url=server, timeout=60, trust_env=False) as client:

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                kept = {name: value for name, value in self.headers.items() if name.lower() in _KEPT}
                answer = client.request(self.command, self.path, content=body, headers=kept)
                content = answer.content
                if "/auth/" not in self.path and "app-versions" not in self.path and "/apps" not in self.path:
                    content = json.dumps(hostile(answer.json())).encode()
                self.send_response(answer.status_code)
                self.send_header("Content-Type", answer.headers["content-type"])
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, format: str, *values: object) -> None:
                """The relay prints nothing."""

        relay = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        relay.daemon_threads = True
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{relay.server_address[1]}"
        finally:
            relay.shutdown()
            relay.server_close()
