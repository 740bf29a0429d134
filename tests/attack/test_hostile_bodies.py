"""Attack: a client that is not signed in sends one body that takes minutes or hours to check. All work of the server
waits for it. One body of 32 kB was enough for 18 seconds, and the time grew with the square of the size."""

import json
from collections.abc import Iterator

import httpx
import pytest
from gpuaas_contract import errors, identity, node
from gpuaas_platform.edge import decode, shape
from server_process import ServerProcess

ANSWER_S_MAX = 60
"""Much more than a busy machine needs for an answer, and much less than each of these bodies took."""
SIZE = decode.BODY_MAX_BYTES - 1024


def _enrolment(facts: str) -> bytes:
    """The body of an enrolment. Facts may have unknown fields, for agents of later releases."""
    known = {"token": "a", "name": "a", "public_key_pem": "a", "ssh_host_public_key": "a"}
    return f'{json.dumps(known)[:-1]}, "facts": {{"hostname": "a", "cpus": 1, "memory_mb": 1, {facts}}}}}'.encode()


def _many_fields(pattern: str) -> str:
    return ",".join(pattern % number for number in range(SIZE // 16))


LOGIN, ENROL = identity.LOGIN.path, node.ENROL.path
BODIES: dict[str, tuple[str, bytes]] = {
    "a string without an end, full of quotation marks": (LOGIN, b"[]" * 65 + b'"' + b'\\"' * (SIZE // 2)),
    "a string without an end, full of backslashes": (LOGIN, b"[]" * 65 + b'"' + b"\\" * SIZE),
    "a name of a field like the text of an error": (LOGIN, json.dumps({" - at `" * (SIZE // 7) + "\n": 1}).encode()),
    "a very long name of a field": (LOGIN, b'{"%b": 1}' % (b"ab" * (SIZE // 2))),
    "many fields, the last one twice": (ENROL, _enrolment(_many_fields('"x%06d": 0') + ', "y": 0, "y": 0')),
    "empty objects": (ENROL, _enrolment(f'"x": [{"{}," * (SIZE // 3)} 1]')),
    "numbers": (ENROL, _enrolment(f'"x": [{"1," * (SIZE // 2 - 64)} 1]')),
    "a long number and an error after it": (ENROL, _enrolment(f'"x": {"1" * 5000}, "y": tru')),
    "a long number": (ENROL, _enrolment(f'"x": {"1" * 5000}')),
    "a long number and an escape": (ENROL, _enrolment(f'"y": "\\u00e9", "x": {"1" * 5000}')),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("attacked") / "data") as running:
        yield running


@pytest.mark.parametrize("case", BODIES)
def test_a_body_that_is_made_to_be_slow_is_refused(server: ServerProcess, case: str) -> None:
    path, body = BODIES[case]
    answer = httpx.post(f"{server.url}{path}", content=body, headers={"X-Idempotency-Key": case}, timeout=ANSWER_S_MAX)
    assert answer.status_code == 400
    assert answer.json()["code"] in ("invalid_request", "validation_error")
    assert httpx.get(f"{server.url}/livez", timeout=ANSWER_S_MAX).status_code == 200


def test_brackets_and_commas_in_strings_do_not_count() -> None:
    text = "[{," * (SIZE // 4)
    shape.check(json.dumps({"name": text, "escaped": '\\"[' * 100}).encode())
    shape.check(json.dumps([[]] * (shape.CONTAINERS_MAX - 1)).encode())
    shape.check(json.dumps([text, *[1] * shape.PARTS_MAX]).encode())


def test_a_body_with_more_parts_than_the_limit_is_refused() -> None:
    bodies: list[list[object]] = [[[]] * shape.CONTAINERS_MAX, [1] * (shape.PARTS_MAX + 2)]
    for body in bodies:
        with pytest.raises(errors.InvalidRequest, match="has more than"):
            shape.check(json.dumps(body).encode())
