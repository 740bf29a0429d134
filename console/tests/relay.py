"""A relay between a console and the platform that changes the platform's answers."""

import contextlib
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx

Change = Callable[[str, Any], Any]
"""Makes from the path of a request and its answer what the console gets."""
_KEPT = ("authorization", "content-type", "x-idempotency-key", "if-match", "accept")


@contextlib.contextmanager
def relaying(server: str, change: Change, certificate: ssl.SSLContext | None = None) -> Iterator[str]:
    """Yield the address of the relay: https if it has a certificate. Requests are passed on as they are."""
    with httpx.Client(base_url=server, timeout=60, trust_env=False) as client:

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                kept = {name: value for name, value in self.headers.items() if name.lower() in _KEPT}
                answer = client.request(self.command, self.path, content=body, headers=kept)
                content = json.dumps(change(self.path, answer.json())).encode()
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
        if certificate is not None:
            relay.socket = certificate.wrap_socket(relay.socket, server_side=True)
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        try:
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{relay.server_address[1]}"
        finally:
            relay.shutdown()
            relay.server_close()
