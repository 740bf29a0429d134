"""Make a screenshot of each page, light and dark, on a small, a usual and a large screen: `make screenshots`."""

import shutil
import sys
import tempfile
from pathlib import Path

import seeded
from clouds import TESTS, Cli, serving
from playwright.sync_api import Browser, sync_playwright
from seeded import Console

WIDTHS = (320, 1280, 2560)
THEMES = ("light", "dark")
GPUS = 4
"""Of each simulated machine."""


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "server").mkdir()
        cli = Cli(place / "home")
        with (
            serving(place / "server") as server,
            seeded.demo_at_work(cli, server, place, gpus=GPUS) as project_id,
            seeded.console(cli, server, project_id, place) as console,
        ):
            _request_an_app(cli, place)
            cli("member", "add", "lab", "--role", "worker", "--allocation", "gpu-4", expect=1)
            with sync_playwright() as playwright:
                program = shutil.which("chromium")
                browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
                _all(browser, console, folder)
                browser.close()
    sys.stdout.write(f"{folder}\n")
    return 0


def _request_an_app(cli: Cli, folder: Path) -> None:
    """Publish an app that the project may not deploy, and request it."""
    manifest = (TESTS / "demo_manifest.yaml").read_text().replace("slug: demo", "slug: notes", 1)
    (folder / "notes.yaml").write_text(manifest.replace("display_name: Demo", "display_name: Notes", 1))
    cli("app", "register", str(folder / "notes.yaml"))
    cli("app", "publish", "notes", "1.0.0")
    cli("entitlement", "request", "notes", "--reason", "course in June")


def _all(browser: Browser, console: Console, folder: Path) -> None:
    context = browser.new_context(base_url=console.url)
    page = context.new_page()
    page.goto(console.link(console.token()))
    page.get_by_role("button", name="Sign in").press("Enter")
    page.wait_for_url(f"{console.url}/")
    for name, path in seeded.pages(console, seeded.failed_add(console)).items():
        page.goto(path)
        for theme in THEMES:
            page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                page.screenshot(path=folder / f"{name}-{theme}-{width}.png", full_page=True)
    context.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
