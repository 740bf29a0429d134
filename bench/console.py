"""Compare pages of the console on a small and on a large record with their floor: the API calls that the page makes.

The small record has 10 instances, the large one 10,000. The first instance of the small one has 10 operations and 10
members more than the others, that of the large one 5,000 operations and 10,000 members. The calls of a page are
recorded once, by a relay between a console and the server; then they are sent one after the other over one connection.
A page sends many of them at the same time, so a ratio below 1 is possible. Then Chromium shows the pages of the large
record (`console_live`).
Both consoles are real processes and the store is SQLite: python -m bench console
"""

import contextlib
import functools
import http.server
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from gpuaas_sdk.testing import free_port

from bench import api, console_live, records
from bench.platform_parts import INSTANCE_ROWS, MEMBER_ROWS, OPERATION_ROWS
from bench.sides import Side

SIZES = {"small": (10, 10, 10), "large": (10_000, 5_000, 10_000)}
"""The number of instances, and of operations and further members of the first instance."""
PAGES = 40
WARM = 5


@dataclass(frozen=True)
class Call:
    """A request of the console to the platform."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Case:
    """A page of one record, and its floor."""

    page: str
    record: str
    calls: int
    show: Callable[[], object]
    replay: Callable[[], object]


@dataclass(frozen=True)
class Site:
    """A server with a record, and the addresses of the pages."""

    side: Side
    folder: Path
    paths: dict[str, str]


def run() -> None:
    with contextlib.ExitStack() as stack:
        sites = {record: stack.enter_context(_record(record)) for record in SIZES}
        cases = [case for _, some in sites.values() for case in some]
        cases.sort(key=lambda case: case.page)
        pages: list[list[float]] = [[] for _ in cases]
        floors: list[list[float]] = [[] for _ in cases]
        for _ in range(WARM + PAGES):  # in turns, so that other work on the machine affects all of them
            for place, case in enumerate(cases):
                pages[place].append(_ms(case.show))
                floors[place].append(_ms(case.replay))
        _report(cases, pages, floors)
        _live(stack, sites["large"][0])


def _report(cases: list[Case], pages: list[list[float]], floors: list[list[float]]) -> None:
    print(f"{f'median of {PAGES}':12}{'record':>10}{'API calls':>11}{'page ms':>9}{'calls ms':>10}{'ratio':>7}")
    for case, *times in zip(cases, pages, floors, strict=True):
        page_ms, floor_ms = (statistics.median(row[WARM:]) for row in times)
        numbers = f"{case.calls:11}{page_ms:9.1f}{floor_ms:10.1f}{page_ms / floor_ms:7.2f}"
        print(f"{case.page:12}{case.record:>10}{numbers}")


def _live(stack: contextlib.ExitStack, site: Site) -> None:
    """Look at the large record in Chromium, beside the pages of other people."""
    tokens = [site.side.admin_token, *(_person(site.side, number) for number in range(1, console_live.PEOPLE))]
    port, words = stack.enter_context(_console(site.folder, f"http://127.0.0.1:{site.side.port}"))
    people = [stack.enter_context(_signed_in(port, words, token)) for token in tokens]
    console_live.run(site.side, people, site.paths)


def _person(side: Side, number: int) -> str:
    """Return the token of a new person who can read the project."""
    name, password = f"person-{number}", "a password of a benchmark"
    side.post("/admin/users", name=name, password=password)
    side.post(f"/projects/{side.project_id}/bindings", user_id=name, role="project_member")
    return api.login(password, side.port, name)


@contextlib.contextmanager
def _record(record: str) -> Iterator[tuple[Site, list[Case]]]:
    """Yield the pages of a console in front of a server with this record."""
    instances, operations, members = SIZES[record]
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as name:
        folder = Path(name)
        side = Side(instances, folder / "platform", "", free_port())
        server = f"http://127.0.0.1:{side.port}"
        with side.serve():
            _fill(side, operations, members)
            paths = {"home": "/", "instance": f"/p/{side.project_id}/instances/{records.instance_id(0)}"}
            with _relay(server) as (relay, calls), _browser(folder, side, relay) as recorded:
                by_page = {page: _calls(recorded, path, calls) for page, path in paths.items()}
            with _browser(folder, side, server) as browser, httpx.Client(base_url=server, timeout=60) as plain:
                yield (
                    Site(side, folder, paths),
                    [
                        Case(
                            page,
                            record,
                            len(by_page[page]),
                            functools.partial(_show, browser, path),
                            functools.partial(_replay, plain, by_page[page]),
                        )
                        for page, path in paths.items()
                    ],
                )


def _show(browser: httpx.Client, path: str) -> None:
    _checked(browser.get(path))


def _replay(plain: httpx.Client, calls: list[Call]) -> None:
    for call in calls:
        answer = plain.request(call.method, call.path, headers=call.headers, content=call.body)
        if answer.status_code != 404:  # what the app has not published yet
            _checked(answer)


def _fill(side: Side, operations: int, members: int) -> None:
    side.make_project()
    side.register_app(records.APP)
    of_project = (side.org_id, side.project_id)
    side.insert(INSTANCE_ROWS, lambda: records.instances(*of_project, side.size))
    side.insert(MEMBER_ROWS, lambda: records.members(*of_project, side.size))
    before = side.size * records.MEMBERS_EACH
    side.insert(MEMBER_ROWS, lambda: records.members_of_first(*of_project, members, before))
    side.insert(OPERATION_ROWS, lambda: records.history(*of_project, operations))


def _calls(browser: httpx.Client, path: str, calls: list[Call]) -> list[Call]:
    """Return the calls of a page that was open before: manifests and permissions are read only now and then."""
    for _ in range(WARM):
        calls.clear()
        _checked(browser.get(path))
    return list(calls)


def _ms(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return (time.perf_counter() - started) * 1000


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.status_code >= 400:
        request = answer.request
        raise SystemExit(f"bench: {request.method} {request.url.path}: {answer.status_code} {answer.text[:300]}")
    return answer


@contextlib.contextmanager
def _browser(folder: Path, side: Side, server: str) -> Iterator[httpx.Client]:
    """Yield a client that is signed in at a console in front of the server."""
    with (
        _console(folder, server) as (port, words),
        _signed_in(port, words, side.admin_token) as browser,
    ):
        yield browser


@contextlib.contextmanager
def _console(folder: Path, server: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the port of a console, and the words that make a sign-in link for it."""
    port, program = free_port(), [sys.executable, "-m", "gpuaas_console.main"]
    links = ["--links", str(folder / f"links-{port}")]
    listen = ["run", "--server", server, "--listen", f"127.0.0.1:{port}"]
    with api.process([*program, *listen, *links], port):
        yield port, [*program, "link", "--url", f"http://127.0.0.1:{port}", *links]


@contextlib.contextmanager
def _signed_in(port: int, words: list[str], token: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as browser:
        link = subprocess.run(words, input=token, capture_output=True, text=True, check=True).stdout.strip()
        csrf = re.search(r'name="csrf" value="([^"]+)"', _checked(browser.get(link)).text)
        _checked(browser.post(link, data={"csrf": csrf[1] if csrf else ""}))
        yield browser


@contextlib.contextmanager
def _relay(server: str) -> Iterator[tuple[str, list[Call]]]:
    """Yield the address of a relay to the server, and the calls that it has passed on."""
    calls: list[Call] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            calls.append(Call(self.command, self.path, kept, body))
            answer = httpx.request(self.command, f"{server}{self.path}", headers=kept, content=body, timeout=60)
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_POST = do_GET

        def log_message(self, format: str, *values: object) -> None:
            """The relay prints nothing."""

    relay = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=relay.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{relay.server_address[1]}", calls
    finally:
        relay.shutdown()
        relay.server_close()
