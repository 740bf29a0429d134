"""The commands that `Machine` sends: one word of its interface each, and many as one. Pure."""

import base64
import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from gpuaas_sdk.machine import shell
from gpuaas_sdk.machine.transport import Command, Completed


class File(msgspec.Struct, frozen=True):
    """A file as it should be on a machine.

    await machine.put_all([File("/etc/kv.conf", "port=7000\\n", mode=0o640, owner="root:kv")])"""

    path: str
    content: str | bytes
    mode: int = 0o644
    owner: str = "root:root"


def run(*argv: str, input: str | bytes = b"", as_user: str | None = None, timeout_s: float = 60) -> Command:
    """Return one command.

    results = await machine.run_all(commands.run("kv", "stop"), commands.run("kv", "compact", timeout_s=600))"""
    return Command(argv, summary=argv, input=as_bytes(input), as_user=as_user, timeout_s=timeout_s)


def script(text: str, *argv: str, timeout_s: float = 300) -> Command:
    """Return a bash script with `argv` as its parameters. It stops at the first command that fails.

    ran = await machine.run_all(commands.script('systemctl stop "$1"', "kv"), commands.run("kv", "compact"))"""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Command(
        ("bash", "-seuo", "pipefail", "--", *argv),
        summary=("script", f"sha256:{digest}", *argv),
        input=shell.grouped(text).encode(),
        timeout_s=timeout_s,
    )


def put_all(files: Sequence[File]) -> Command:
    """Return the command that replaces these files, each atomically, after all contents were received.

    command = commands.put_all([File("/etc/kv.conf", "port=7000\\n")])"""
    contents = [as_bytes(file.content) for file in files]
    words = [(file.path, f"{file.mode:o}", file.owner) for file in files]
    with_sizes = [(*word, str(len(content))) for word, content in zip(words, contents, strict=True)]
    argv = ("bash", "-c", shell.PUT_ALL, "put", *(part for word in with_sizes for part in word))
    summary = ("put", *(part for word in words for part in word))
    return Command(argv, summary=summary, input=b"".join(contents))


def changed(files: Sequence[File], stdout: str) -> tuple[str, ...]:
    """Return the paths of the files that `put_all` changed, from what it printed.

    paths = commands.changed([File("/etc/kv.conf", "port=7000\\n")], text)"""
    return tuple(files[int(position)].path for position in stdout.split())


def get_all(*paths: str) -> Command:
    """Return the command that prints the contents of these files.

    command = commands.get_all("/etc/kv.conf", "/etc/kv.key")"""
    return Command(("sh", "-c", shell.GET_ALL, "get", *paths), summary=("get", *paths))


def contents(paths: Sequence[str], stdout: str) -> dict[str, bytes | None]:
    """Return the contents of these files from what `get_all` printed; None for a file that does not exist.

    content = commands.contents(["/etc/kv.conf"], text)["/etc/kv.conf"]"""
    lines = [line.partition(" ") for line in stdout.splitlines()]
    values = [base64.b64decode(line[2]) if line[0] == "present" else None for line in lines]
    return dict(zip(paths, values, strict=True))


def run_all(commands: Sequence[Command], *, stops: bool, timeout_s: float) -> Command:
    """Return the command that runs these one after the other.

    command = commands.run_all([commands.run("kv", "stop")], stops=True, timeout_s=60)"""
    argvs = [shell.as_other(command.argv, command.as_user) for command in commands]
    words = [(str(len(argv)), str(len(command.input)), *argv) for argv, command in zip(argvs, commands, strict=True)]
    return Command(
        ("bash", "-c", shell.ALL, "all", "stop" if stops else "continue", *(part for word in words for part in word)),
        summary=("all", *(part for command in commands for part in (*command.summary, ";"))),
        input=b"".join(command.input for command in commands),
        timeout_s=timeout_s,
        parts=tuple(commands),
    )


def results(printed: bytes) -> Iterator[Completed]:
    """Yield how each command ended, from what `run_all` printed.

    is_done = all(completed.exit_status == 0 for completed in commands.results(content))"""
    while printed:
        sizes, _, printed = printed.partition(b"\n")
        status, output, errors = map(int, sizes.split())
        yield Completed(status, printed[:output], printed[output : output + errors])
        printed = printed[output + errors :]


def as_line(completed: Completed) -> bytes:
    """Return how a command ended as `run_all` prints it.

    line = commands.as_line(Completed(0, b"", b""))"""
    sizes = f"{completed.exit_status} {len(completed.stdout)} {len(completed.stderr)}\n"
    return sizes.encode() + completed.stdout + completed.stderr


def as_bytes(content: str | bytes) -> bytes:
    """Return the content as bytes; text is encoded as UTF-8.

    assert b"7000" in commands.as_bytes("port=7000")"""
    return content.encode() if isinstance(content, str) else content
