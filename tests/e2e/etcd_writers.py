"""Clients that write to etcd and read from it, all the time, over TLS, and remember what was acknowledged."""

import base64
import contextlib
import http.client
import json
import ssl
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from register_history import Done

REGISTER, LOG = "register", "log/"
TIMEOUT_S = 5.0
FILES = {
    "ca": "/etc/gpuaas-etcd/ca.crt",
    "certificate": "/etc/gpuaas-etcd/member.crt",
    "key": "/etc/gpuaas-etcd/member.key",
}


class Client:
    """One client. It asks one member after the other until one answers, as the clients of etcd do."""

    def __init__(self, addresses: Sequence[str], folder: Path) -> None:
        self._addresses = list(addresses)
        self._tls = ssl.create_default_context(cafile=str(folder / "ca"))
        self._tls.load_cert_chain(folder / "certificate", folder / "key")
        self._connection: http.client.HTTPSConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def put(self, key: str, value: str) -> int:
        """Write the value and return the revision of the write."""
        answer = self._call("/v3/kv/put", {"key": _coded(key), "value": _coded(value)})
        return int(answer["header"]["revision"])

    def get(self, key: str) -> tuple[str, int]:
        """Return the value and the revision that wrote it; the read is consistent."""
        entries = self._call("/v3/kv/range", {"key": _coded(key)}).get("kvs", [])
        return (_decoded(entries[0]["value"]), int(entries[0]["mod_revision"])) if entries else ("", 0)

    def keys(self, prefix: str) -> set[str]:
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        asked = {"key": _coded(prefix), "range_end": _coded(end), "keys_only": True}
        return {_decoded(entry["key"]) for entry in self._call("/v3/kv/range", asked).get("kvs", [])}

    def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send the request once. If it is not acknowledged, raise `OSError`; the next call asks the next member."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPSConnection(
                    self._addresses[0], 2379, timeout=TIMEOUT_S, context=self._tls
                )
            self._connection.request("POST", path, json.dumps(body))
            answer = self._connection.getresponse()
            content: dict[str, Any] = json.loads(answer.read())
            if answer.status != 200:
                raise OSError(content)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            self._addresses.append(self._addresses.pop(0))
            raise OSError(str(error)) from error
        return content


class Writers:
    """Several clients in threads: each writes a key of its own to the log, writes the register and reads it."""

    def __init__(self, addresses: Sequence[str], folder: Path, count: int = 3) -> None:
        self.history: list[Done] = []
        self.begun: dict[str, float] = {}
        self.acknowledged: list[str] = []
        self.unanswered = 0
        self._stops = threading.Event()
        turned = [[*addresses[at % len(addresses) :], *addresses[: at % len(addresses)]] for at in range(count)]
        clients = [Client(order, folder) for order in turned]
        self._threads = [threading.Thread(target=self._work, args=(client,)) for client in clients]

    def __enter__(self) -> "Writers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join()

    def _work(self, client: Client) -> None:
        with contextlib.closing(client):
            self._write_and_read(client)

    def _write_and_read(self, client: Client) -> None:
        while not self._stops.is_set():
            value = uuid.uuid4().hex
            try:
                client.put(f"{LOG}{value}", value)
                self.acknowledged.append(f"{LOG}{value}")
                self.begun[value] = began_s = time.monotonic()
                revision = client.put(REGISTER, value)
                self.history.append(Done("write", value, revision, began_s, time.monotonic()))
                began_s = time.monotonic()
                seen, revision = client.get(REGISTER)
                self.history.append(Done("read", seen, revision, began_s, time.monotonic()))
            except OSError:
                self.unanswered += 1
                self._stops.wait(0.1)  # all members may be away for a moment


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
