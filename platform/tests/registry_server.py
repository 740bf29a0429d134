"""A real OCI registry from the distribution's package, unpacked into a cache and run on loopback. No root needed."""

import contextlib
import hashlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import pytest

PACKAGE = "docker-registry"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CACHE = Path.home() / ".cache" / "gpuaas-tests" / PACKAGE
_LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")
_CONFIG = """version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:0"}}
"""


@dataclass(frozen=True)
class Registry:
    host: str
    folder: Path

    def push(self, repository: str, tag: str, content: bytes, media_type: str) -> str:
        """As release tools do: the blob, an empty config, then a manifest that lists them. Returns its digest."""
        with httpx.Client(base_url=f"http://{self.host}/v2/{repository}", trust_env=False, timeout=60) as client:
            layer = {**_push_blob(client, content), "mediaType": media_type}
            config = {**_push_blob(client, b"{}"), "mediaType": "application/vnd.oci.empty.v1+json"}
            manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
            raw = msgspec.json.encode(manifest)
            sent = client.put(f"/manifests/{tag}", content=raw, headers={"Content-Type": MANIFEST})
            assert sent.status_code == 201, sent.text
        return _digest(raw)

    def blob_path(self, digest: str) -> Path:
        value = digest.removeprefix("sha256:")
        return self.folder / "docker/registry/v2/blobs/sha256" / value[:2] / value / "data"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Registry]:
    """Its log goes to a file: a pipe that no process reads would fill up and block it."""
    binary = _binary()
    config, log = folder / "config.yml", folder / "log"
    config.write_text(_CONFIG.format(folder=folder / "data"))
    with log.open("wb") as file:
        process = subprocess.Popen([binary, "serve", config], stderr=file, stdout=subprocess.DEVNULL)
    try:
        yield Registry(f"127.0.0.1:{_port(process, log)}", folder / "data")
    finally:
        process.terminate()
        process.wait(timeout=60)


def _port(process: "subprocess.Popen[bytes]", log: Path) -> str:
    ends_at = time.monotonic() + 60
    while not (match := _LISTENING.search(log.read_text())):
        is_late = process.poll() is not None or time.monotonic() > ends_at
        assert not is_late, f"{PACKAGE} did not start:\n{log.read_text()[-3000:]}"
        time.sleep(0.02)
    return match[1]


def _binary() -> Path:
    installed = shutil.which(PACKAGE)
    binary = Path(installed) if installed else _CACHE / "usr/bin" / PACKAGE
    if not binary.exists():
        _unpack()
    return binary


def _unpack() -> None:
    if shutil.which("apt-get") is None:
        pytest.skip(f"no registry: this host has no apt-get to get {PACKAGE} with")
    _CACHE.mkdir(parents=True, exist_ok=True)
    got = subprocess.run(["apt-get", "-q", "download", PACKAGE], cwd=_CACHE, capture_output=True, text=True)
    packages = sorted(_CACHE.glob(f"{PACKAGE}_*.deb"))
    if got.returncode != 0 or not packages:
        pytest.skip(f"no registry: apt-get download {PACKAGE} failed: {got.stderr.strip()[-200:]}")
    subprocess.run(["dpkg-deb", "--extract", packages[-1], _CACHE], check=True)


def _push_blob(client: httpx.Client, content: bytes) -> dict[str, str | int]:
    started = client.post("/blobs/uploads/")
    assert started.status_code == 202, started.text
    place = httpx.URL(started.headers["location"]).copy_merge_params({"digest": _digest(content)})
    sent = client.put(place, content=content, headers={"Content-Type": "application/octet-stream"})
    assert sent.status_code == 201, sent.text
    return {"digest": _digest(content), "size": len(content)}


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
