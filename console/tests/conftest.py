"""A seeded platform and a console, both real processes, and people who use the console over HTTP."""

from collections.abc import Callable, Iterator

import httpx
import pytest
import seeded
from clouds import Cli, Server, identity_provider, serving
from page_person import Person
from seeded import Console


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Also lets people sign in through an identity provider."""
    with identity_provider() as issuer:
        options = ("--oidc-issuer", issuer, "--oidc-client-id", "gpuaas", "--oidc-redirect-url", seeded.REDIRECT)
        with serving(tmp_path_factory.mktemp("server"), *options) as running:
            yield running


@pytest.fixture(scope="session")
def console(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    folder = tmp_path_factory.mktemp("console")
    cli = Cli(tmp_path_factory.mktemp("home"))
    with (
        seeded.demo_at_work(cli, server, folder) as project_id,
        seeded.console(cli, server, project_id, folder) as running,
    ):
        yield running


@pytest.fixture
def visitor(console: Console) -> Iterator[Callable[[], Person]]:
    """Make people who are not signed in."""
    clients: list[httpx.Client] = []

    def make() -> Person:
        clients.append(httpx.Client(base_url=console.url, timeout=60, trust_env=False))
        return Person(clients[-1], console.project_id)

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def admin(visitor: Callable[[], Person], console: Console) -> Person:
    """The platform's admin, signed in with a password."""
    person = visitor()
    assert person.sign_in("admin", console.server.password).status_code == 303
    return person


@pytest.fixture(scope="session")
def other_project(console: Console) -> str:
    """The name of a second project, with a machine and without a controller."""
    console.cli("project", "create", "second", "--org", "acme")
    console.cli("allocation", "request", "--node", "gpu-6", "--wait", "--project", "second")
    console.cli("app", "entitle", "demo", "--project", "second")
    return "second"


@pytest.fixture(scope="session")
def failed_add(console: Console) -> str:
    """The id of an operation that failed: the demo app of the instance `lab` refuses new workers."""
    console.cli("member", "add", "lab", "--role", "worker", "--allocation", "gpu-4", expect=1)
    return seeded.failed_add(console)
