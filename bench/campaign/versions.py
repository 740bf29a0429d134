"""The second version of Slurm, to which schedules upgrade: a bundle that is made once, and the app version with it."""

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from gpuaas_lab.main import DEFAULT_STATE

from bench.campaign.cluster import Cluster
from bench.campaign.parts import BIN

RELEASE = "forky"
CACHE = DEFAULT_STATE / "bundles" / RELEASE
"""Beside the images of the lab, which are made once too."""
KEY, BUNDLE = CACHE / "signing.pem", CACHE / "slurm.tar"


async def offer(cluster: Cluster) -> str:
    """Publish the bundle as people do, and return the app version that installs it."""
    return await asyncio.to_thread(_offer, cluster)


def _offer(cluster: Cluster) -> str:
    version = publish(cluster.cloud.gpuaas, cluster.folder)
    cluster.journal.note("start", f"app version {version} from {BUNDLE}")
    return version


def publish(run: Callable[..., object], folder: Path) -> str:
    """Publish the bundle and the app version that installs it with this command line. Return the version."""
    made = bundle()
    public, signature = folder / "bundles.pub", Path(f"{made}.dsse")
    _ran("openssl", "pkey", "-in", str(KEY), "-pubout", "-out", str(public))
    run("artifact", "trust", "add", "bundles", str(public))
    content = ("--file", str(made), "--media-type", "application/x-tar", "--signature", str(signature))
    run("artifact", "publish", "slurm-packages", *content)
    run("artifact", "verify", "slurm-packages")
    run("artifact", "promote", "slurm-packages", "--channel", "stable")
    manifest = folder / "version.json"
    manifest.write_text(_ran(str(BIN / "gpuaas-slurm"), "bundle", "manifest", str(made)))
    version = str(json.loads(manifest.read_text())["version"])
    run("app", "register", str(manifest))
    run("app", "publish", "slurm", version)
    return version


def bundle() -> Path:
    """Return the bundle. It is made if there is none, which downloads packages for half a minute."""
    if not CACHE.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
            made = Path(folder) / CACHE.name
            made.mkdir()
            key = made / KEY.name
            _ran("openssl", "genpkey", "-algorithm", "ed25519", "-out", str(key))
            making = ("bundle", "make", "--release", RELEASE, "--out", str(made / BUNDLE.name), "--key", str(key))
            _ran(str(BIN / "gpuaas-slurm"), *making)
            made.rename(CACHE)
    return BUNDLE


def _ran(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)} failed:\n{ran.stdout}{ran.stderr}")
    return ran.stdout
