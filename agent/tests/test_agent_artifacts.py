"""Content comes onto a host by its digest, for one allocation: whole and right, or not at all."""

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
from gpuaas_agent import config, files, identity, wire
from gpuaas_agent.handlers import artifact, owners, spec
from gpuaas_agent.testing import platform as testing_platform

CONTENT = b"x" * (wire.CHUNK_BYTES + 17)
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
USER = getpass.getuser()


class Host:
    """An enrolled node whose artifacts and claims lie in a folder."""

    def __init__(self, folder: Path, platform: testing_platform.Platform) -> None:
        self.folder, self.platform = folder, platform
        settings = config.Config(folder / "agent.json", platform.url, "", platform.enrolment_token, "gpu-1")
        settings.path.write_text(json.dumps({"token": platform.enrolment_token}))
        server, state = wire.Server(platform.url, None), folder / "state"
        state.mkdir()
        node_id = identity.enrol(server, settings, state, dict, threading.Event())
        self.session = identity.Session(server, node_id, state / "key.pem")

    def fetch(self, **changes: Any) -> Path:
        params = {"placement_id": "plc_1", "allocation_id": "alloc_1", "user": USER, "mode": "0644"}
        content = {"digest": DIGEST, "size_bytes": len(CONTENT)}
        return Path(artifact.fetch({**params, **content, **changes}, self.session)["path"])

    def left(self) -> list[Path]:
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
    monkeypatch.setattr(owners, "CLAIMS", tmp_path / "claims")
    (tmp_path / "lib").mkdir()
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / USER).write_text("alloc_1\n")
    return Host(tmp_path, platform)


def test_content_lies_under_its_allocation_and_digest_and_is_fetched_once(host: Host) -> None:
    first, second = host.fetch(), host.fetch()
    assert first == second == artifact.ARTIFACTS / "alloc_1/sha256" / DIGEST.removeprefix("sha256:")
    assert first.read_bytes() == CONTENT
    assert host.left() == [first]
    assert len(host.platform.seen("GET", "/artifact-content/")) == 1


@pytest.mark.parametrize("mode", ["0600", "0644", "0700", "0755"])
def test_content_is_readable_as_the_task_says_also_when_it_was_here_before(host: Host, mode: str) -> None:
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
    assert host.left() == [path]


@pytest.mark.parametrize(
    ("sent", "code"),
    [(CONTENT[:-1] + b"y", "artifact_digest_mismatch"), (CONTENT + b"y", "artifact_too_large")],
)
def test_other_content_than_the_signed_task_names_never_lands(host: Host, sent: bytes, code: str) -> None:
    host.platform.artifacts["plc_1"] = sent
    with pytest.raises(spec.HandlerError) as refused:
        host.fetch()
    assert (refused.value.code, host.left()) == (code, [])


def test_content_that_was_cut_off_is_left_for_later(host: Host) -> None:
    host.platform.artifacts["plc_1"] = CONTENT[:-1]
    with pytest.raises(spec.TryLater):
        host.fetch()
    host.platform.stop()
    with pytest.raises(spec.TryLater):
        host.fetch()
    assert host.left() == []


def test_a_token_that_no_longer_counts_is_renewed_for_the_next_try(host: Host) -> None:
    host.fetch().unlink()
    host.platform.forget_access_tokens()
    with pytest.raises(spec.TryLater):
        host.fetch()
    assert host.fetch().read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("status", "said", "code"),
    [
        (422, "artifact_revoked", "artifact_revoked"),
        (422, "artifact_digest_mismatch", "artifact_digest_mismatch"),
        (404, "not_found", "artifact_refused"),
    ],
)
def test_a_refusal_is_told_as_the_platform_said_it(host: Host, status: int, said: str, code: str) -> None:
    host.platform.artifact_refusal = testing_platform.Problem(status, said)
    with pytest.raises(spec.HandlerError) as refused:
        host.fetch()
    assert (refused.value.code, host.left()) == (code, [])


def test_a_platform_in_trouble_is_asked_again(host: Host) -> None:
    host.platform.artifact_refusal = testing_platform.Problem(503, "unavailable")
    with pytest.raises(spec.TryLater):
        host.fetch()


def test_a_disk_without_room_refuses_before_the_first_byte(host: Host) -> None:
    with pytest.raises(spec.HandlerError) as refused:
        host.fetch(size_bytes=2**53)
    assert (refused.value.code, host.left()) == ("disk_full", [])
    assert host.platform.seen("GET", "/artifact-content/") == []


def test_nothing_comes_for_an_allocation_the_node_does_not_serve(host: Host) -> None:
    with pytest.raises(spec.HandlerError) as refused:
        host.fetch(allocation_id="alloc_2")
    assert (refused.value.code, host.left()) == ("allocation_gone", [])


def test_a_release_takes_its_own_content_and_leaves_the_folders_as_they_were(host: Host) -> None:
    path = host.fetch()
    other = artifact.ARTIFACTS / "alloc_2/sha256/f00d"
    other.parent.mkdir(parents=True)
    other.touch()
    assert artifact.remove("alloc_1") == [str(path)]
    assert host.left() == [other]
    assert artifact.remove("alloc_1") == []
    assert artifact.remove("alloc_2") == [str(other)]
    assert list((host.folder / "lib").iterdir()) == []


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
            owners.disown(USER)
            artifact.remove("alloc_1")

    host.platform.before_answer = release
    with pytest.raises(spec.HandlerError) as refused:
        host.fetch()
    assert (refused.value.code, host.left()) == ("allocation_gone", [])
    assert list((host.folder / "lib").iterdir()) == []


def test_a_release_while_the_content_that_is_here_is_looked_at_says_that_the_allocation_is_gone(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.fetch()
    digest_of = artifact._digest_of

    def release_meanwhile(path: Path) -> str:
        found = digest_of(path)
        owners.disown(USER)
        artifact.remove("alloc_1")
        return found

    monkeypatch.setattr(artifact, "_digest_of", release_meanwhile)
    with pytest.raises(spec.HandlerError) as refused:
        host.fetch()
    assert (refused.value.code, host.left()) == ("allocation_gone", [])


def test_no_release_runs_while_a_fetch_that_failed_takes_its_draft_away(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would stumble over a file or folder that the other has just removed."""
    remove, is_held = files.remove, list[bool]()

    def remove_and_tell(path: Path) -> bool:
        is_held.append(artifact.CHANGING.locked())
        return remove(path)

    monkeypatch.setattr(files, "remove", remove_and_tell)
    host.platform.artifacts["plc_1"] = CONTENT[:-1]
    with pytest.raises(spec.TryLater):
        host.fetch()
    assert (is_held, host.left()) == ([True], [])
