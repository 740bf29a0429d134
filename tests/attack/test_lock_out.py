"""Attack: wrong passwords for the name of another person, so that this person cannot sign in. Five were enough to lock
a person out from everywhere, and behind a proxy to lock all people out."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from gpuaas_contract import identity
from server_process import ServerProcess

HOME, NEW_PLACE = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", options=["--trusted-proxy", "127.0.0.1"]) as running:
        yield running


def test_a_person_signs_in_while_the_whole_internet_guesses_their_password(server: ServerProcess) -> None:
    password = server.admin_password()
    assert _sign_in(server, password, HOME).status_code == 200
    guesses = [_sign_in(server, "a wrong password", f"198.51.100.{number}") for number in range(30)]
    assert {answer.status_code for answer in guesses[:20]} == {401}
    assert 429 in {answer.status_code for answer in guesses[20:]}
    assert _sign_in(server, password, HOME).status_code == 200


def test_a_person_who_cannot_sign_in_behind_the_proxy_does_not_slow_down_the_others(server: ServerProcess) -> None:
    password = server.admin_password()
    guesses = [_sign_in(server, "a wrong password", "198.51.100.1") for _ in range(6)]
    assert [answer.status_code for answer in guesses] == [401] * 5 + [429]
    assert int(guesses[5].headers["retry-after"]) > 1
    assert _sign_in(server, password, NEW_PLACE).status_code == 200


def _sign_in(server: ServerProcess, password: str, address: str) -> httpx.Response:
    """Sign in as the admin through a proxy that reports this address."""
    body, headers = {"name": "admin", "password": password}, {"X-Forwarded-For": f"10.9.9.9, {address}"}
    return httpx.post(f"{server.url}{identity.LOGIN.path}", json=body, headers=headers, timeout=60)
