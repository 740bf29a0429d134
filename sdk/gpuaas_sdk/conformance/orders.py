"""What arrives at a simulated machine, decoded: commands without what the SDK wraps around them, the parts of many in
one, and the files of one. Pure."""

import functools
import shlex
from collections.abc import Iterator, Sequence

from gpuaas_sdk.machine import shell


class Incomplete(Exception):
    """Only a part of the standard input arrived. A machine changes nothing then."""


@functools.lru_cache(4096)  # an app runs the same commands on all machines, and the split takes a millisecond
def command_of(line: str) -> tuple[tuple[str, ...], int | None]:
    """Return the command that an app ran, without what the SDK wraps around it, and the size of its input if the input
    does not end by itself."""
    argv, size = shlex.split(line), None
    if argv[:2] == ["sudo", "-n"]:
        argv = argv[argv.index("--") + 1 :]
    if argv[:3] == ["bash", "-c", shell.IN_UNIT]:
        size, argv = int(argv[6]), argv[7:]
    if argv[:1] == ["timeout"]:
        argv = argv[3:]
    return _without_user(argv), size


def parts(argv: tuple[str, ...], data: bytes) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """Yield each command of `Machine.run_all`, with its input."""
    words = argv[5:]
    while words:
        count, size = int(words[0]), int(words[1])
        if len(data) < size:
            raise Incomplete
        yield _without_user(words[2 : 2 + count]), data[:size]
        words, data = words[2 + count :], data[size:]


def files(argv: tuple[str, ...], data: bytes) -> list[tuple[str, bytes]]:
    """Return the path and the content of each file of `Machine.put` or `Machine.put_all`."""
    words, contents = argv[4:], list[tuple[str, bytes]]()
    for path, size in zip(words[::4], map(int, words[3::4]), strict=True):
        if len(data) < size:
            raise Incomplete
        contents.append((path, data[:size]))
        data = data[size:]
    return contents


def script(argv: tuple[str, ...], data: bytes) -> str:
    """Return the text of a shell script that arrived as standard input. Other input may be secret."""
    is_script = argv[0] == "bash" and argv[1:2] != () and argv[1].startswith("-s")
    return data.decode(errors="replace") if is_script else ""


def without_environment(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command without `env NAME=VALUE` before it."""
    if argv[0] != "env":
        return argv
    return argv[next((at for at, word in enumerate(argv) if at and "=" not in word), 0) :]


def as_text(content: bytes) -> str:
    """Return output as text. `as_bytes` returns it to the same bytes, also if they are no text."""
    return content.decode(errors="surrogateescape")


def as_bytes(output: str) -> bytes:
    return output.encode(errors="surrogateescape")


def _without_user(argv: Sequence[str]) -> tuple[str, ...]:
    argv = tuple(argv)
    return argv[8:] if argv[:2] == ("runuser", "-u") else argv
