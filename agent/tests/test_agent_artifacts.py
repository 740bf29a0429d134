"""Content comes onto a host by its digest: whole and right, or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuaas_agent import wire
from gpuaas_agent.handlers import artifact, spec
from gpuaas_agent.testing import platform as testing_platform

CONTENT = b"x" * (wire.CHUNK_BYTES + 17)
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[testing_platform.Platform]:
    started = testing_platform.Platform(tmp_path)
    started.artifacts["dlv_1"] = ("secret", CONTENT)
    started.start()
    yield started
    started.stop()


def fetch(platform: testing_platform.Platform, folder: Path, **changes: Any) -> dict[str, Any]:
    params = {"delivery_id": "dlv_1", "token": "secret", "digest": DIGEST, "size_bytes": len(CONTENT), **changes}
    return artifact.fetch(params, wire.Server(platform.url, None), folder / "artifacts")


def left(folder: Path) -> list[Path]:
    return [path for path in (folder / "artifacts").rglob("*") if path.is_file()]


def test_content_lies_under_its_digest_and_is_fetched_once(platform: testing_platform.Platform, tmp_path: Path) -> None:
    first, second = fetch(platform, tmp_path), fetch(platform, tmp_path)
    assert first == second == {"path": first["path"], "digest": DIGEST, "size_bytes": len(CONTENT)}
    assert Path(first["path"]).read_bytes() == CONTENT
    assert left(tmp_path) == [Path(first["path"])]
    assert len(platform.seen("GET", "/artifact-content/")) == 1


def test_content_that_was_changed_on_the_host_is_fetched_again(
    platform: testing_platform.Platform, tmp_path: Path
) -> None:
    path = Path(fetch(platform, tmp_path)["path"])
    path.write_bytes(b"changed")
    fetch(platform, tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("sent", "code"),
    [(CONTENT[:-1] + b"y", "artifact_digest_mismatch"), (CONTENT + b"y", "artifact_size_mismatch")],
)
def test_other_content_than_the_signed_task_names_never_lands(
    platform: testing_platform.Platform, tmp_path: Path, sent: bytes, code: str
) -> None:
    platform.artifacts["dlv_1"] = ("secret", sent)
    with pytest.raises(spec.HandlerError) as refused:
        fetch(platform, tmp_path)
    assert (refused.value.code, left(tmp_path)) == (code, [])


def test_content_that_was_cut_off_is_left_for_later(platform: testing_platform.Platform, tmp_path: Path) -> None:
    platform.artifacts["dlv_1"] = ("secret", CONTENT[:-1])
    with pytest.raises(spec.TryLater):
        fetch(platform, tmp_path)
    platform.stop()
    with pytest.raises(spec.TryLater):
        fetch(platform, tmp_path)
    assert left(tmp_path) == []


def test_a_delivery_that_is_over_is_a_refusal(platform: testing_platform.Platform, tmp_path: Path) -> None:
    with pytest.raises(spec.HandlerError) as refused:
        fetch(platform, tmp_path, token="other")
    assert (refused.value.code, left(tmp_path)) == ("artifact_refused", [])
