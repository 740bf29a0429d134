"""People at the console in a headless browser. Each change that they send is compared with the request of the command
line that the page shows."""

import contextlib
import json
import os
import re
import subprocess
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import recording_proxy
import slurm_people
from cloud_in_use import BIN, Cloud
from clouds import answers, end, until
from gpuaas_sdk.testing import free_port
from playwright.sync_api import Locator, Page, expect
from recording_proxy import Recorder

LIMIT_MS = 600_000
"""How long a busy host may take."""
ENDED = re.compile("succeeded|failed|cancelled")
BUSY = re.compile(r"\(op_\w+\) is \w+ here")
ASKING = ("decommission",)
"""Commands that ask before they act."""
INSTANCE = "slurm"
PICTURES = os.environ.get("GPUAAS_PICTURES", "")
"""Folder for a picture of each page of the story."""


@dataclass(frozen=True)
class Console:
    """A console whose requests to the platform are recorded."""

    url: str
    links: Path
    cloud: Cloud
    sent: Recorder
    typed: Recorder
    """What command lines send: it is recorded and refused, so that nothing is changed twice."""

    def link(self, token: str) -> str:
        """Return a sign-in link that works once."""
        words = [str(BIN / "gpuaas-console"), "link", "--links", str(self.links), "--url", self.url]
        return subprocess.run(words, input=token, capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def console(cloud: Cloud, folder: Path) -> Iterator[Console]:
    server, url = f"http://127.0.0.1:{cloud.port}", f"127.0.0.1:{free_port()}"
    with recording_proxy.recording(server, refuses=False) as sent, recording_proxy.recording(server) as typed:
        words = [str(BIN / "gpuaas-console"), "run", "--server", sent.url, "--listen", url]
        with (folder / "console.log").open("w") as log:
            process = subprocess.Popen([*words, "--links", str(folder / "links")], stdout=log, stderr=log)
        try:
            until(lambda: answers(f"http://{url}/healthz"), "the console is ready")
            yield Console(f"http://{url}", folder / "links", cloud, sent, typed)
        finally:
            end(process)


@dataclass
class Person:
    """A person at the console, with the command line of the same person at `home`."""

    console: Console
    page: Page
    home: Path

    @property
    def token(self) -> str:
        config = json.loads((self.home / "config.json").read_text())
        return str(config["contexts"][config["current"]]["token"])

    def open(self, *path: str, **query: str) -> None:
        parts = "/".join(urllib.parse.quote(part, safe="") for part in path)
        asked = f"?{urllib.parse.urlencode(query)}" if query else ""
        self.page.goto(f"/p/{self.console.cloud.project_id}/{parts}{asked}")

    def follow(self, link: str) -> None:
        with self.page.expect_navigation():
            # A control that is not possible now is no link of the page; the live page replaces it.
            self.page.get_by_role("link", name=link, exact=True).and_(self.page.locator("a")).first.click()

    def press(self, button: str) -> None:
        with self.page.expect_navigation():
            self.page.get_by_role("button", name=button, exact=True).click()

    def send(self, button: str, *, confirm: str = "") -> None:
        """Check the form, run the command line that the page shows, then send the form."""
        self.press("Check, change nothing")
        self.picture(f"check {button}")
        self._submit(button, self._type(self.shown()), confirm)

    def result(self) -> Locator:
        """Return the table that an action gave. A slow one has its own page."""
        table = self.page.locator("section[aria-labelledby='h-result'] table")
        expect(table).to_be_visible(timeout=LIMIT_MS)
        return table

    def leave(self, exit_name: str, *, reason: str, confirm: str) -> None:
        """Take an exit of the operation that the page shows."""
        self.follow(exit_name)
        self.picture(f"exit {exit_name}")
        typed = self._type(self.shown().replace("REASON", f"'{reason}'"))
        self.page.locator("#reason").fill(reason)
        self._submit(exit_name, typed, confirm)

    def shown(self) -> str:
        """Return the command line that the page shows for the same request."""
        return self.page.locator("#same code").first.text_content() or ""

    def operation_ends(self, status: str = "succeeded") -> None:
        badge = self.page.locator("#live .lead .badge")
        expect(badge).to_contain_text(ENDED, timeout=LIMIT_MS)
        self.picture("operation ended")
        assert status in badge.inner_text(), self.page.locator("#main").inner_text()

    def member(self, node: str, role: str = "worker") -> Locator:
        """Return the row of a member on the page of the instance."""
        return self.page.locator("tr", has=self.page.get_by_role("checkbox", name=f"Choose {node} {role}", exact=True))

    def sees(self, node: str, status: str) -> None:
        expect(self.member(node).locator(".badge").first).to_contain_text(re.compile(status), timeout=LIMIT_MS)

    def choose(self, verb: str, *nodes: str) -> None:
        """On the page of the instance, choose workers and what to do with them."""
        self.open("instances", INSTANCE)
        for node in nodes:
            self.member(node).get_by_role("checkbox").check()
        self.press(verb)

    def picture(self, name: str) -> None:
        if PICTURES:
            number = len(os.listdir(PICTURES))
            self.page.screenshot(path=f"{PICTURES}/{number:03} {name}.png", full_page=True)

    def _submit(self, button: str, typed: recording_proxy.Sent, confirm: str) -> None:
        slurm_people.until(f"{button} is not refused", lambda: self._accepted(button, typed, confirm))

    def _accepted(self, button: str, typed: recording_proxy.Sent, confirm: str) -> bool:
        """Send the form, unless the app repairs a member by itself at the moment."""
        if confirm:
            self.page.locator("#confirm").fill(confirm)
        self.console.sent.sent.clear()
        self.press(button)
        self._assert_same(typed)
        return self.page.get_by_role("alert").filter(has_text=BUSY).count() == 0

    def _type(self, line: str) -> recording_proxy.Sent:
        words, given = recording_proxy.words_of(line)
        yes = ["--yes"] if words[0] in ASKING else []
        environment = {"GPUAAS_SERVER": self.console.typed.url, "GPUAAS_TOKEN": self.token}
        subprocess.run(
            [str(BIN / "gpuaas"), *words, *yes],
            env={**self.console.cloud.environment(self.home), **environment},
            input=given,
            capture_output=True,
            text=True,
            timeout=600,
        )
        return self.console.typed.take()

    def _assert_same(self, typed: recording_proxy.Sent) -> None:
        listed = self.console.cloud.listed("instances")
        names = {item["name"]: item["instance_id"] for item in listed if item["status"] != "deleted"}
        recording_proxy.assert_same(self.console.sent.take(), typed, **names)
