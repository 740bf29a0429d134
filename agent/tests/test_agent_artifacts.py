"""Content is fetched onto a host by its digest, for one allocation: complete and correct, or not at all."""

from __future__ import annotations

import getpass
import hashlib
import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuaas_agent import config, errors, files, identity, wire
from gpuaas_agent.handlers import artifact
from gpuaas_agent.host import claims
from gpuaas_agent.testing import platform as testing_platform

CONTENT = b"x" * (wire.CHUNK_BYTES + 17)
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
USER = getpass.getuser()


class Host:
    """An enrolled node whose artifacts and claims are in a test folder."""

    def __init__(self, folder: Path, platform: testing_platform.Platform) -> None:
        self.folder, self.platform = folder, platform
        settings = config.Config(folder / "agent.json", platform.url, "", platform.enrolment_token, "gpu-1")
        settings.path.write_text(json.dumps({"token": platform.enrolment_token}))
        server, state = wire.Server(platform.url, None), folder / "state"
        state.mkdir()
        node_id = identity.enrol(server, settings, state, dict, threading.Event())
        self.client = identity.NodeClient(server, node_id, state / "key.pem")

    def unplace(self, **changes: Any) -> list[str]:
        params = {"placement_id": "plc_2", "allocation_id": "alloc_1", "user": USER, "digest": DIGEST}
        removed: list[str] = artifact.unplace({**params, **changes})["removed"]
        return removed

    def fetch(self, **changes: Any) -> Path:
        params = {"placement_id": "plc_1", "allocation_id": "alloc_1", "user": USER, "mode": "0644"}
        content = {"digest": DIGEST, "size_bytes": len(CONTENT)}
        return Path(artifact.fetch({**params, **content, **changes}, self.client)["path"])

    def stored(self) -> list[Path]:
        return [path for path in (self.folder / "lib").rglob("*") if path.is_file()]


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[testing_platform.Platform]:
    started = testing_platform.Platform(tmp_path)
    started.artifacts["plc_1"] = CONTENT
    started.start()
    yield started
    started.stop()


@pytest.fixture
def host(tmp_path: Path, platform: testing_platform.Platform, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(artifact, "ARTIFACTS", tmp_path / "lib/gpuaas/artifacts")
    monkeypatch.setattr(claims, "CLAIMS", tmp_path / "claims")
    (tmp_path / "lib").mkdir()
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / USER).write_text("alloc_1\n")
    return Host(tmp_path, platform)


def test_content_is_stored_by_allocation_and_digest_and_fetched_once(host: Host) -> None:
    first, second = host.fetch(), host.fetch()
    assert first == second == artifact.ARTIFACTS / "alloc_1/sha256" / DIGEST.removeprefix("sha256:")
    assert first.read_bytes() == CONTENT
    assert host.stored() == [first]
    assert len(host.platform.seen("GET", "/artifact-content/")) == 1


@pytest.mark.parametrize("mode", ["0600", "0644", "0700", "0755"])
def test_content_gets_the_mode_of_the_task_even_if_it_was_present_before(host: Host, mode: str) -> None:
    assert stat.S_IMODE(host.fetch(mode=mode).stat().st_mode) == int(mode, 8)
    assert stat.S_IMODE(host.fetch(mode="0600").stat().st_mode) == 0o600
    assert stat.S_IMODE(host.fetch(mode=mode).stat().st_mode) == int(mode, 8)


def test_content_that_was_changed_on_the_host_is_fetched_again(host: Host) -> None:
    path = host.fetch()
    path.write_bytes(b"changed")
    assert host.fetch().read_bytes() == CONTENT


def test_what_a_killed_agent_left_behind_is_overwritten(host: Host) -> None:
    path = host.fetch()
    path.rename(path.with_name(f".{path.name}.new"))
    assert host.fetch().read_bytes() == CONTENT
    assert host.stored() == [path]


@pytest.mark.parametrize(
    ("sent", "code"),
    [(CONTENT[:-1] + b"y", "artifact_digest_mismatch"), (CONTENT + b"y", "artifact_too_large")],
)
def test_content_that_differs_from_the_signed_task_is_never_stored(host: Host, sent: bytes, code: str) -> None:
    host.platform.artifacts["plc_1"] = sent
    with pytest.raises(errors.TaskFailed) as refused:
        host.fetch()
    assert (refused.value.code, host.stored()) == (code, [])


def test_an_interrupted_download_is_tried_later(host: Host) -> None:
    host.platform.artifacts["plc_1"] = CONTENT[:-1]
    with pytest.raises(errors.TryLater):
        host.fetch()
    host.platform.stop()
    with pytest.raises(errors.TryLater):
        host.fetch()
    assert host.stored() == []


def test_a_refused_token_is_renewed_for_the_next_attempt(host: Host) -> None:
    host.fetch().unlink()
    host.platform.forget_access_tokens()
    with pytest.raises(errors.TryLater):
        host.fetch()
    assert host.fetch().read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("status", "platform_code", "code"),
    [
        (422, "artifact_revoked", "artifact_revoked"),
        (422, "artifact_digest_mismatch", "artifact_digest_mismatch"),
        (404, "not_found", "artifact_refused"),
    ],
)
def test_a_refusal_keeps_the_platforms_code(host: Host, status: int, platform_code: str, code: str) -> None:
    host.platform.artifact_refusal = testing_platform.Problem(status, platform_code)
    with pytest.raises(errors.TaskFailed) as refused:
        host.fetch()
    assert (refused.value.code, host.stored()) == (code, [])


def test_a_temporary_failure_of_the_platform_is_tried_later(host: Host) -> None:
    host.platform.artifact_refusal = testing_platform.Problem(503, "unavailable")
    with pytest.raises(errors.TryLater):
        host.fetch()


def test_a_full_disk_fails_the_task_before_the_first_byte(host: Host) -> None:
    with pytest.raises(errors.TaskFailed) as refused:
        host.fetch(size_bytes=2**53)
    assert (refused.value.code, host.stored()) == ("disk_full", [])
    assert host.platform.seen("GET", "/artifact-content/") == []


def test_nothing_is_fetched_for_an_allocation_that_is_not_on_the_node(host: Host) -> None:
    with pytest.raises(errors.TaskFailed) as refused:
        host.fetch(allocation_id="alloc_2")
    assert (refused.value.code, host.stored()) == ("allocation_gone", [])


def test_a_release_removes_only_its_own_content_and_empty_folders(host: Host) -> None:
    path = host.fetch()
    other = artifact.ARTIFACTS / "alloc_2/sha256/f00d"
    other.parent.mkdir(parents=True)
    other.touch()
    assert artifact.remove("alloc_1") == [str(path)]
    assert host.stored() == [other]
    assert artifact.remove("alloc_1") == []
    assert artifact.remove("alloc_2") == [str(other)]
    assert list((host.folder / "lib").iterdir()) == []


def test_one_artifact_is_removed_and_the_others_of_the_allocation_stay(host: Host) -> None:
    path = host.fetch()
    kept = path.with_name("f00d")
    kept.touch()
    assert (host.unplace(), host.stored()) == ([str(path)], [kept])
    assert (host.unplace(), host.stored()) == ([], [kept])
    assert host.fetch() == path


def test_the_removal_of_the_last_artifact_leaves_no_folder_and_no_draft(host: Host) -> None:
    path = host.fetch()
    path.with_name(f".{path.name}.new").touch()
    assert host.unplace() == [str(path)]
    assert list((host.folder / "lib").iterdir()) == []
    assert host.unplace() == []


def test_nothing_is_removed_for_an_allocation_that_is_not_on_the_node(host: Host) -> None:
    path = host.fetch()
    with pytest.raises(errors.TaskFailed) as refused:
        host.unplace(allocation_id="alloc_2")
    assert (refused.value.code, host.stored()) == ("allocation_gone", [path])


@pytest.mark.parametrize("linked", ["alloc_1", "alloc_1/sha256"])
def test_a_removal_follows_no_link_that_a_tenant_put_in_place_of_a_folder(host: Host, linked: str) -> None:
    name = DIGEST.removeprefix("sha256:")
    kept = host.folder / "elsewhere" / ("sha256" if linked == "alloc_1" else "") / name
    kept.parent.mkdir(parents=True)
    kept.touch()
    link = artifact.ARTIFACTS / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(host.folder / "elsewhere")
    assert (host.unplace(), kept.exists()) == ([], True)


def test_a_release_follows_no_link_that_a_tenant_put_in_place_of_the_folder(host: Host) -> None:
    elsewhere = host.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    artifact.ARTIFACTS.mkdir(parents=True)
    (artifact.ARTIFACTS / "alloc_1").symlink_to(elsewhere)
    assert artifact.remove("alloc_1") == []
    assert (elsewhere / "kept").exists()
    assert list((host.folder / "lib").iterdir()) == []


def test_a_release_in_the_middle_of_a_download_leaves_nothing(host: Host) -> None:
    def release(request: testing_platform.Request) -> None:
        if "/artifact-content/" in request.path:
            claims.remove(USER)
            artifact.remove("alloc_1")

    host.platform.before_answer = release
    with pytest.raises(errors.TaskFailed) as refused:
        host.fetch()
    assert (refused.value.code, host.stored()) == ("allocation_gone", [])
    assert list((host.folder / "lib").iterdir()) == []


def test_a_release_during_the_check_of_present_content_fails_the_fetch(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.fetch()
    digest_of = artifact._digest_of

    def release_after_digest(path: Path) -> str:
        digest = digest_of(path)
        claims.remove(USER)
        artifact.remove("alloc_1")
        return digest

    monkeypatch.setattr(artifact, "_digest_of", release_after_digest)
    with pytest.raises(errors.TaskFailed) as refused:
        host.fetch()
    assert (refused.value.code, host.stored()) == ("allocation_gone", [])


def test_a_failed_fetch_removes_its_draft_under_the_lock(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a release beside it would fail on a file or folder that was just removed."""
    remove, is_held = files.remove, list[bool]()

    def remove_and_record(path: Path) -> bool:
        is_held.append(artifact.FOLDER_LOCK.locked())
        return remove(path)

    monkeypatch.setattr(files, "remove", remove_and_record)
    host.platform.artifacts["plc_1"] = CONTENT[:-1]
    with pytest.raises(errors.TryLater):
        host.fetch()
    assert (is_held, host.stored()) == ([True], [])
