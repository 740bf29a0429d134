"""What people see of a large record in Chromium: the first paint of a page, and a change while 200 pages are open.

A change is a hold on a member of the first instance. Its commit is over when the server has answered. It is visible
when the open page in Chromium shows it, without a reload; the other pages have received the message about it."""

import asyncio
import contextlib
import shutil
import statistics
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence

import httpx
from playwright.sync_api import Page, sync_playwright

from bench import records
from bench.sides import Side

PAINTS = 20
PEOPLE, PAGES_EACH = 4, 50
"""A person has at most 50 open pages. One of the first person is the page in Chromium."""
CHANGES = 20
PAINT_S = 60.0
OPEN_S = 120.0
AGAIN_S = 0.5
PAUSE_S = 1.0
PAINT = "performance.getEntriesByType('paint').find(entry => entry.name === 'first-paint')?.startTime"


def run(side: Side, people: Sequence[httpx.Client], paths: Mapping[str, str]) -> None:
    """Measure with the consoles' clients of signed-in people. The first one also looks at the page in Chromium."""
    with _page(people[0]) as page:
        for name, path in paths.items():
            times = [_paint_ms(page, path) for _ in range(PAINTS)]
            print(f"first paint of {name:10} median {statistics.median(times):6.0f} ms, most {max(times):6.0f} ms")
        page.goto(paths["instance"])
        page.get_by_text("Live", exact=True).wait_for()
        with _opened(people, f"{paths['instance']}/stream") as streams:
            seen, woken = _changes(side, page, streams)
    print(f"{CHANGES} changes, {len(people) * PAGES_EACH} streams open, from the commit:")
    print(f"  shown by the page in Chromium  median {_median(seen):6.0f} ms, most {max(seen):6.0f} ms")
    print(f"  last of all streams woken      median {_median(woken):6.0f} ms, most {max(woken):6.0f} ms")


def _median(times: Sequence[float]) -> float:
    return statistics.median(times)


@contextlib.contextmanager
def _page(person: httpx.Client) -> Iterator[Page]:
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("bench: no browser: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context(base_url=str(person.base_url))
        context.add_cookies(
            [{"name": name, "value": value, "url": str(person.base_url)} for name, value in person.cookies.items()]
        )
        yield context.new_page()
        browser.close()


def _paint_ms(page: Page, path: str) -> float:
    page.goto(path)
    # Not wait_for_function: it evaluates text in the page, which the console's policy for scripts forbids.
    ends_at = time.monotonic() + PAINT_S
    while (painted_ms := page.evaluate(PAINT)) is None:
        if time.monotonic() > ends_at:
            raise SystemExit(f"bench: {path} was not painted within {PAINT_S:g} s")
        page.wait_for_timeout(5)
    return float(painted_ms)


class _Stream:
    """The stream of one open page."""

    def __init__(self, url: httpx.URL, cookies: dict[str, str]) -> None:
        self.woken_at = 0.0
        self._url, self._cookies = url, cookies

    async def read(self, client: httpx.AsyncClient, ready: asyncio.Semaphore) -> None:
        """Read the stream, and open it again if it ends, as browsers do: a page that was left can still be counted."""
        while True:
            async with client.stream("GET", self._url, cookies=self._cookies) as answer:
                async for line in answer.aiter_lines():
                    if line == "event: changed":
                        if self.woken_at == 0.0:
                            ready.release()
                        self.woken_at = time.perf_counter()
            await asyncio.sleep(AGAIN_S)


async def _open(streams: Sequence[_Stream], ready: threading.Event, stop: asyncio.Event) -> None:
    first = asyncio.Semaphore(0)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=60, limits=limits, trust_env=False) as client, asyncio.TaskGroup() as group:
        readers = [group.create_task(stream.read(client, first)) for stream in streams]
        for _ in streams:
            await first.acquire()
        ready.set()
        await stop.wait()
        for reader in readers:
            reader.cancel()


@contextlib.contextmanager
def _opened(people: Sequence[httpx.Client], path: str) -> Iterator[list[_Stream]]:
    """Yield the streams of many open pages. A thread reads them; Chromium is driven from this one."""
    readers = [person for person in people for _ in range(PAGES_EACH)][1:]
    streams = [_Stream(person.base_url.join(path), dict(person.cookies)) for person in readers]
    ready, stop, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()
    reader = threading.Thread(target=lambda: loop.run_until_complete(_open(streams, ready, stop)), daemon=True)
    reader.start()
    if not ready.wait(OPEN_S):
        closed = sum(stream.woken_at == 0.0 for stream in streams)
        raise SystemExit(f"bench: {closed} of {len(streams)} streams were not open after {OPEN_S:g} s")
    try:
        yield streams
    finally:
        loop.call_soon_threadsafe(stop.set)
        reader.join()
        loop.close()


def _changes(side: Side, page: Page, streams: Sequence[_Stream]) -> tuple[list[float], list[float]]:
    """Return after how many ms each change was shown, and after how many all streams had been woken."""
    seen, woken = [], []
    for _ in range(CHANGES):
        name = f"bench-{uuid.uuid4().hex[:12]}"
        time.sleep(PAUSE_S)  # messages about the change before have arrived
        asked = time.perf_counter()
        committed = _hold(side, name)
        page.get_by_text(name).first.wait_for()  # the hold, and the event about it
        seen.append((time.perf_counter() - committed) * 1000)
        # A stream can be woken before the client has the answer, so a wake-up counts from the request on.
        while min(stream.woken_at for stream in streams) < asked:
            if time.perf_counter() > committed + OPEN_S:
                raise SystemExit(f"bench: a stream was not woken within {OPEN_S:g} s")
            time.sleep(0.005)
        woken.append(max(0.0, max(stream.woken_at for stream in streams) - committed) * 1000)
    return seen, woken


def _hold(side: Side, name: str) -> float:
    """Place a hold and return when the server had answered."""
    member = f"/projects/{side.project_id}/app-instances/{records.instance_id(0)}/members/{records.member_id(0)}"
    side.post(f"{member}/holds", name=name, kind="no_work", reason="bench")
    return time.perf_counter()
