"""Uploads and fetches leave a reserve of the disk free, and a refused one leaves no file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from artifact_world import CONTENT, digest_of
from gpuaas_contract import errors
from gpuaas_platform.artifacts.blobs import Blobs
from gpuaas_platform.kit import disk

RESERVE_BYTES = 1000


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The free bytes that the file system reports, one answer after the other; the last one stays."""
    answers: list[int] = []

    def space(_: Path) -> disk.Space:
        free_bytes = answers.pop(0) if len(answers) > 1 else answers[0]
        return disk.Space(1 << 40, free_bytes, has_free_inodes=True, is_read_only=False)

    monkeypatch.setattr(disk, "space", space)
    return answers


async def _take(folder: Path) -> list[str]:
    """Store the content; return the names of the files afterwards."""

    async def chunks() -> AsyncIterator[bytes]:
        yield CONTENT[:5]
        yield CONTENT[5:]

    await Blobs(folder, RESERVE_BYTES).take(chunks(), digest_of(CONTENT), len(CONTENT))
    return _files(folder)


def _files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


async def test_content_that_leaves_exactly_the_reserve_is_stored(tmp_path: Path, free: list[int]) -> None:
    free.append(RESERVE_BYTES + len(CONTENT))
    assert await _take(tmp_path) == [digest_of(CONTENT).removeprefix("sha256:")]


async def test_content_that_would_use_the_reserve_is_refused_before_it_is_read(tmp_path: Path, free: list[int]) -> None:
    free.append(RESERVE_BYTES + len(CONTENT) - 1)
    with pytest.raises(errors.InsufficientStorage) as refused:
        await _take(tmp_path)
    assert refused.value.details == {"free_bytes": free[0], "reserve_bytes": RESERVE_BYTES}
    assert _files(tmp_path) == []


async def test_content_is_refused_when_others_use_the_space_during_its_upload(tmp_path: Path, free: list[int]) -> None:
    enough = RESERVE_BYTES + len(CONTENT)
    free.extend([enough, enough, RESERVE_BYTES])
    with pytest.raises(errors.InsufficientStorage):
        await _take(tmp_path)
    assert _files(tmp_path) == []
