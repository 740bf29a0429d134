"""The agent keeps its connections while the platform does, and replaces closed ones without an error."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuaas_agent import wire
from gpuaas_agent.testing import openssl
from gpuaas_agent.testing import platform as testing_platform

CALLS = 5


@pytest.fixture(params=["plain", "tls"])
def platform(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[testing_platform.Platform]:
    authority = openssl.make_authority(tmp_path, "authority")
    tls = openssl.make_server_certificate(tmp_path, authority, "127.0.0.1") if request.param == "tls" else None
    started = testing_platform.Platform(tmp_path, tls=tls, ca_pem=authority.pem)
    started.start()
    yield started
    started.stop()


@pytest.fixture
def server(platform: testing_platform.Platform) -> wire.Server:
    plain = platform.url.startswith("http:")
    return wire.Server(platform.url, None) if plain else wire.verified(platform.url, platform.ca_pem)


def call(server: wire.Server, times: int = 1) -> None:
    answers = [server.call("GET", "/node/v1/trust") for _ in range(times)]
    assert all("task_public_key_pem" in answer for answer in answers)


def test_many_calls_share_one_connection_refusals_included(
    platform: testing_platform.Platform, server: wire.Server
) -> None:
    call(server, CALLS)
    with pytest.raises(wire.Rejected):
        server.call("GET", "/node/v1/status")
    call(server, CALLS)
    assert platform.connections_made == 1


def test_a_platform_that_was_restarted_is_reached_again_without_an_error(
    platform: testing_platform.Platform, server: wire.Server
) -> None:
    call(server)
    platform.stop()
    platform.start()
    call(server, CALLS)
    assert platform.connections_made == 2


def test_a_platform_that_closes_after_every_answer_can_be_called_again(
    platform: testing_platform.Platform, server: wire.Server
) -> None:
    platform.stop()
    platform.keeps_connections = False
    platform.start()
    call(server, CALLS)
    assert platform.connections_made == CALLS


def test_every_thread_has_its_own_connection(platform: testing_platform.Platform, server: wire.Server) -> None:
    loops = [threading.Thread(target=call, args=(server, CALLS)) for _ in range(3)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    assert len(platform.seen("GET", "/trust")) == 3 * CALLS
    assert platform.connections_made == 3


def test_the_rest_of_an_answer_is_never_read_as_the_next_one(
    platform: testing_platform.Platform, server: wire.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as limited:
        limited.setattr(wire, "ANSWER_BYTES_MAX", 10)
        with pytest.raises(wire.Unreachable):
            server.call("GET", "/node/v1/trust")
    call(server)
    assert platform.connections_made == 2


def test_a_request_interrupted_on_a_new_connection_is_not_repeated(
    platform: testing_platform.Platform, server: wire.Server
) -> None:
    platform.before_answer = lambda request: platform.stop()
    with pytest.raises(wire.Unreachable):
        server.call("GET", "/node/v1/trust")
    assert len(platform.seen("GET", "/trust")) == 1


def test_a_download_has_its_own_connection_that_is_closed_after_it(
    platform: testing_platform.Platform, server: wire.Server
) -> None:
    platform.artifacts["plc_1"] = b"x" * 10
    platform.access_tokens["secret"] = "node_1"
    call(server)
    assert b"".join(server.download("/node/v1/artifact-content/plc_1", "secret")) == b"x" * 10
    call(server)
    assert platform.connections_made == 2


def test_a_file_name_that_is_not_valid_utf_8_does_not_make_a_report_that_the_platform_refuses() -> None:
    body = {"files": [os.fsdecode(b"/tmp/bad-\xff\xc3\xa9")], "count": 1}
    assert wire.encoded(body) == '{"count": 1, "files": ["/tmp/bad-?é"]}'.encode()
