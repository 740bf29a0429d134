"""The story of a cluster in a browser, from the request for the app to its end, on machines with real Slurm. For each
change, the command line that the page shows sends the same request.

Long: `make test-slurm` runs it. `GPUAAS_PICTURES=FOLDER` keeps a picture of the pages."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import chromium
import console_in_browser
import pytest
import slurm_bundles
import slurm_jobs
import slurm_people
from cloud_in_use import Cloud
from console_in_browser import INSTANCE as NAME
from console_in_browser import LIMIT_MS, Person
from playwright.sync_api import Browser, expect

pytestmark = [pytest.mark.machines, pytest.mark.long, pytest.mark.timeout(3600)]

LAB, PORT, NODES = "story", "7220", 5
BROKEN = Path("/etc/systemd/system/slurmd.service.d/zz-broken.conf")
SCRIPT = "#!/bin/bash\n#SBATCH --mem=16\nsleep 3600\n"


class World(NamedTuple):
    cloud: Cloud
    versions: dict[str, str]
    """App versions: `old` and `new`."""
    browser: Browser
    admin: Person
    ada: Person
    """A member of the project, who may request apps and not grant them."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    homes = tmp_path_factory.mktemp("homes")
    with (
        chromium.running() as browser,
        slurm_bundles.air_gapped(LAB, PORT, NODES) as (cloud, versions),
        console_in_browser.console(cloud, homes) as console,
    ):
        cloud.gpuaas("user", "create", "ada")
        cloud.gpuaas("binding", "grant", "ada", "project_member")
        slurm_people.sign_in(cloud, "ada", homes / "ada")
        people = [_person(browser, console, home) for home in (cloud.home, homes / "ada")]
        yield World(cloud, versions, browser, *people)


def _person(browser: Browser, console: console_in_browser.Console, home: Path) -> Person:
    context = browser.new_context(base_url=console.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(LIMIT_MS)
    return Person(console, context.new_page(), home)


def test_a_cluster_from_its_request_to_its_end_in_a_browser(world: World) -> None:
    _sign_in(world)
    _request_and_grant_the_app(world)
    _deploy(world)
    _add_two_workers(world)
    _drain_under_a_job_and_resume(world)
    _remove(world)
    _submit_and_cancel_a_job(world)
    _lose_a_worker_and_get_it_back(world)
    _recover_a_failed_add(world)
    _upgrade(world)
    _decommission(world)


def _sign_in(world: World) -> None:
    """The link that `gpuaas up` prints signs in at its own console. The story continues at the recorded one."""
    printed = world.cloud.gpuaas("up", "--lab", LAB, "--port", PORT, "--nodes", str(NODES), "--no-deploy").stderr
    link = re.search(r"http\S+/sign-in/link/\S+", printed)
    assert link, printed
    for person, address in ((world.admin, link[0]), (world.admin, world.admin.console.link(world.admin.token))):
        person.page.goto(address)
        person.press("Sign in")
        expect(person.page.get_by_role("heading", name="Needs attention")).to_be_visible()
    page = world.ada.page
    page.goto("/")
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill(slurm_people.PASSWORD)
    world.ada.press("Sign in")
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()


def _request_and_grant_the_app(world: World) -> None:
    world.cloud.gpuaas("app", "entitle", "slurm", "--off")
    ada, admin = world.ada, world.admin
    ada.open("catalog")
    ada.follow("Request Slurm")
    ada.page.locator("[name='in.reason']").fill("course in June")
    ada.send("Request an app")
    expect(ada.page.get_by_text("Done.")).to_be_visible()
    admin.page.goto("/")
    expect(admin.page.get_by_text("course in June")).to_be_visible()
    admin.picture("home with a request")
    admin.open("catalog")
    admin.follow("Let this project deploy Slurm")
    admin.send("Let the project deploy it")
    expect(admin.page.get_by_text("Done.")).to_be_visible()
    ada.open("catalog")
    expect(ada.page.get_by_role("link", name="Deploy Slurm")).to_be_visible()
    ada.picture("catalog")


def _deploy(world: World) -> None:
    admin, page = world.admin, world.admin.page
    admin.open("catalog")
    admin.follow("Slurm")
    admin.follow(world.versions["old"])
    admin.follow("Deploy")
    page.locator("[name='name']").fill(NAME)
    page.locator("[name='topology'][value='split']").check()
    page.locator("[name='in.cluster_name']").fill("story")
    page.locator("[name='in.controller_allocation_id']").select_option(label=_choice(admin, "gpu-1"))
    page.get_by_role("group", name="Worker machines").get_by_label("gpu-2 ").check()
    admin.send("Deploy")
    admin.operation_ends()
    admin.open("instances", NAME)
    expect(page.locator("#live .lead .badge")).to_contain_text("running", timeout=LIMIT_MS)
    admin.sees("gpu-2", "ready")
    admin.picture("instance")


def _choice(person: Person, node: str) -> str:
    """Return what the picker of the controller offers for the machine."""
    choices = person.page.locator("[name='in.controller_allocation_id'] option").all_inner_texts()
    return next(choice for choice in choices if choice.startswith(f"{node} "))


def _add_two_workers(world: World) -> None:
    admin = world.admin
    admin.choose("Add members")
    admin.page.locator("#role").select_option("worker")
    for node in ("gpu-3", "gpu-4"):
        admin.page.get_by_role("group", name="Machines").get_by_label(f"{node} ").check()
    admin.send("Add members")
    admin.operation_ends()
    admin.open("instances", NAME)
    admin.sees("gpu-3", "ready")
    admin.sees("gpu-4", "ready")


def _drain_under_a_job_and_resume(world: World) -> None:
    """The operation shows what it waits for, and the member is drained when the job has ended."""
    admin = world.admin
    job = slurm_jobs.start_long(world.cloud, "-w gpu-3")
    admin.choose("Drain", "gpu-3")
    admin.page.locator("#reason").fill("new memory")
    admin.send("Drain")
    expect(admin.page.locator("#live")).to_contain_text(f"1 job still on gpu-3: {job} ", timeout=LIMIT_MS)
    admin.picture("drain waits")
    slurm_jobs.finish(world.cloud)
    admin.operation_ends()
    admin.open("instances", NAME)
    admin.sees("gpu-3", "drained")
    admin.choose("Resume", "gpu-3")
    admin.send("Resume")
    admin.operation_ends()


def _remove(world: World) -> None:
    admin = world.admin
    admin.choose("Remove", "gpu-3")
    admin.page.locator("#reason").fill("needed elsewhere")
    admin.send("Remove", confirm=NAME)
    admin.operation_ends()
    admin.open("instances", NAME)
    expect(admin.member("gpu-3")).to_have_count(0)


def _submit_and_cancel_a_job(world: World) -> None:
    admin = world.admin
    admin.open("instances", NAME)
    admin.follow("Submit a job")
    admin.page.locator("[name='in.script']").fill(SCRIPT)
    admin.page.locator("[name='in.name']").fill("long one")
    admin.page.locator("#reason").fill("to see the queue")
    admin.send("Run")
    job = admin.result().locator("tbody td").first.inner_text()
    admin.picture("submitted")
    assert job.isdigit(), admin.result().inner_text()
    admin.open("instances", NAME)
    admin.follow("Cancel your jobs")
    admin.page.locator("[name='in.jobs']").fill(job)
    admin.send("Run")
    expect(admin.result()).to_contain_text(job)
    admin.picture("cancelled")
    slurm_people.until("the job is cancelled", lambda: "CANCELLED" in slurm_jobs.state(world.cloud, job))


def _lose_a_worker_and_get_it_back(world: World) -> None:
    """The open page shows a machine that is cut off, and that it is back. The app repairs a stopped slurmd itself."""
    admin = world.admin
    admin.open("instances", NAME)
    _lab(world, "cut", "gpu-4")
    try:
        admin.sees("gpu-4", "degraded|failed")
        admin.picture("a worker is lost")
    finally:
        _lab(world, "heal", "gpu-4")
    admin.sees("gpu-4", "ready")
    repairs = admin.page.locator("#h-operations ~ div tr", has_text="repair 1 worker").filter(has_text="succeeded")
    before = repairs.count()
    world.cloud.on("gpu-2", "systemctl stop slurmd")
    expect(repairs.nth(before)).to_be_visible(timeout=LIMIT_MS)
    admin.sees("gpu-2", "ready")
    admin.picture("repaired")


def _lab(world: World, act: str, node: str) -> None:
    world.cloud.gpuaas("lab", act, node, "--lab", LAB)


def _recover_a_failed_add(world: World) -> None:
    """An add waits for a machine that is cut off until its deadline, so that a broken service makes this one fail."""
    admin = world.admin
    world.cloud.on("gpu-5", f"mkdir -p {BROKEN.parent}; printf '[Service]\\nExecStartPre=/bin/false\\n' > {BROKEN}")
    admin.choose("Add members")
    admin.page.locator("#role").select_option("worker")
    admin.page.get_by_role("group", name="Machines").get_by_label("gpu-5 ").check()
    admin.send("Add members")
    admin.operation_ends("failed")
    world.cloud.on("gpu-5", f"rm {BROKEN}; systemctl daemon-reload")
    admin.leave("Retry", reason="the cable is in", confirm=NAME)
    admin.operation_ends()
    admin.open("instances", NAME)
    admin.sees("gpu-5", "ready")


def _upgrade(world: World) -> None:
    admin = world.admin
    admin.open("instances", NAME)
    admin.follow("Upgrade")
    admin.page.locator("#version").select_option(world.versions["new"])
    admin.page.locator("#reason").fill("new scheduler")
    admin.send("Upgrade", confirm=NAME)
    admin.operation_ends()
    admin.open("instances", NAME)
    expect(admin.page.locator("#live .lead")).to_contain_text(world.versions["new"])
    installed = slurm_bundles.slurm_version(world.versions["new"])
    expect(admin.member("gpu-2")).to_contain_text(installed, timeout=LIMIT_MS)
    admin.picture("upgraded")


def _decommission(world: World) -> None:
    admin = world.admin
    admin.open("instances", NAME)
    admin.follow("Decommission")
    admin.page.locator("#reason").fill("the course ended")
    admin.send("Decommission", confirm=NAME)
    admin.operation_ends()
