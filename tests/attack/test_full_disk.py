"""Attack: one member uploads artifacts until the disk is full, so that the writes of all other tenants fail.

The data folder is a small file system of its own. Uploads must stop at the reserve, other writes must continue, and on
a disk that is really full every answer must name the reason. Nothing that was acknowledged may be lost.
"""

import asyncio
import hashlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gpuaas_contract import artifacts, errors, policy
from gpuaas_contract.artifacts import Artifact
from gpuaas_platform.artifacts.blobs import Blobs
from gpuaas_platform.kit import disk
from server_process import Cloud, ServerProcess

MIB = 1024**2
DISK_MIB, RESERVE_MIB, FILE_MIB = 64, 24, 6
WRITES_MAX = 5000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root: sudo make test")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "gpuaas-test", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"this host does not mount file systems: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
async def attacked(small_disk: Path) -> AsyncIterator[Cloud]:
    options = ["--disk-reserve-bytes", str(RESERVE_MIB * MIB)]
    with ServerProcess(small_disk / "data", options=options) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            cloud = Cloud(client)
            await cloud.sign_in(server.admin_password())
            await cloud.make_project()
            yield cloud


async def test_uploads_stop_at_the_reserve_and_other_writes_continue(attacked: Cloud, small_disk: Path) -> None:
    answers = [await _upload(attacked, number) for number in range(DISK_MIB // FILE_MIB)]
    refused = next(answer for answer in answers if answer.status_code != 200)
    assert (refused.status_code, refused.json()["code"]) == (507, errors.InsufficientStorage.code)
    assert refused.json()["details"]["reserve_bytes"] == RESERVE_MIB * MIB
    assert answers[0].status_code == 200
    assert disk.space(small_disk).free_bytes >= RESERVE_MIB * MIB - FILE_MIB * MIB, "the database needs a little of it"
    assert list((small_disk / "data" / "blobs" / "drafts").iterdir()) == []
    await attacked.make_event()
    assert (await attacked.http.get("/readyz")).status_code == 200


async def test_a_full_disk_is_named_in_each_answer_and_nothing_acknowledged_is_lost(
    attacked: Cloud, small_disk: Path
) -> None:
    filler = small_disk / "filler"
    _fill(filler)
    failed = await _written_until_refused(attacked)
    assert (failed["status"], failed["code"], failed["details"]) == (503, "unavailable", {"reason": "disk_full"})
    assert (await _upload(attacked, 1, published=False)).status_code == 503
    unready = await attacked.http.get("/readyz")
    assert unready.status_code == 503
    assert unready.json()["details"]["failed"]["disk"] == "disk_full"
    filler.unlink()
    await _until_ready(attacked)
    await attacked.make_event()
    recorded = [event.correlation_id for event in await attacked.recorded()]
    assert [made for made in attacked.answered if made not in recorded] == []
    assert len(recorded) == len(set(recorded))


async def test_an_upload_that_meets_a_full_disk_is_refused_and_leaves_no_file(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quota of a user on a file system is such a case: the free space looks larger than it is."""
    monkeypatch.setattr(disk, "space", lambda _: disk.Space(1 << 40, 1 << 39, True, False))
    content = bytes(DISK_MIB * MIB + 1)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"

    async def chunks() -> AsyncIterator[bytes]:
        for first in range(0, len(content), MIB):
            yield content[first : first + MIB]

    with pytest.raises(errors.InsufficientStorage):
        await Blobs(small_disk).take(chunks(), digest, len(content))
    assert _files(small_disk) == []


async def test_a_disk_that_others_fill_during_an_upload_ends_the_upload_at_the_reserve(small_disk: Path) -> None:
    content = bytes(4 * MIB)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"

    async def chunks() -> AsyncIterator[bytes]:
        yield content[:MIB]
        (small_disk / "other").write_bytes(bytes((DISK_MIB - RESERVE_MIB) * MIB))
        yield content[MIB:]

    with pytest.raises(errors.InsufficientStorage) as refused:
        await Blobs(small_disk, RESERVE_MIB * MIB).take(chunks(), digest, len(content))
    assert refused.value.details["reserve_bytes"] == RESERVE_MIB * MIB
    assert _files(small_disk) == ["other"]


async def _upload(cloud: Cloud, number: int, *, published: bool = True) -> httpx.Response:
    content = number.to_bytes(2, "big") * (FILE_MIB * MIB // 2)
    body = {
        "name": f"file-{number}",
        "digest": f"sha256:{hashlib.sha256(content).hexdigest()}",
        "size_bytes": len(content),
        "media_type": "application/octet-stream",
        "source": {"kind": "local"},
    }
    answer = await cloud.send(artifacts.PUBLISH, body)
    if not published:
        return answer
    artifact = Artifact(**answer.json())
    path = artifacts.CONTENT_PUT.path.format(project_id=cloud.project_id, artifact_id=artifact.artifact_id)
    return await cloud.http.put(path, content=content, headers={"Authorization": f"Bearer {cloud.token}"})


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(64 * 1024))
        except OSError:
            return


async def _written_until_refused(cloud: Cloud) -> dict[str, Any]:
    """The write-ahead log has some room left from before, so the first writes may still succeed."""
    for number in range(WRITES_MAX):
        overlay = policy.Overlay(reason=f"{number:0500}")
        answer = await cloud.send(policy.GLOBAL_SET, overlay, headers={"If-Match": "*"})
        if answer.status_code == 503:
            return dict(answer.json())
        await cloud.make_event()
    raise AssertionError("no write was refused")


async def _until_ready(cloud: Cloud) -> None:
    while (await cloud.http.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.05)


def _files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]
