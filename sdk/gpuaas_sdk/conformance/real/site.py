"""The platform, the project and the machines on which an app is tried."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.catalog import PROJECT_APP_GET
from gpuaas_contract.errors import ApiError, NotFound

from gpuaas_sdk.auth import BearerToken
from gpuaas_sdk.client import Client
from gpuaas_sdk.conformance import plan
from gpuaas_sdk.conformance.controllers import Subject
from gpuaas_sdk.conformance.real import feasible
from gpuaas_sdk.conformance.real.requests import Place
from gpuaas_sdk.controller.command import Credentials
from gpuaas_sdk.outcomes import NoAnswer


class CannotUse(Exception):
    """The platform cannot be used for the checks. The message is what is missing, and the next command.

    try:
        card = await real.run(subject, site)
    except CannotUse as error:
        sys.exit(str(error))"""


@dataclass(frozen=True)
class Site:
    """Where an app is tried, and who asks for it.

    site = Site("http://127.0.0.1:7070", "default", token, Path("key.json"))"""

    server: str
    project: str
    """Name or id of the project."""
    token: str = field(repr=False)
    """The token of the person who requests the operations."""
    credentials: Path
    """The key file of the app's service account, for the controllers that the kit starts."""
    ca_file: Path | None = None
    machines: Sequence[str] = ()
    """The names of the machines to use; by default all of the project that no instance uses."""

    def client(self) -> Client:
        """Return a client that is signed in as the person."""
        return Client(self.server, BearerToken(self.token), ca_file=self.ca_file)

    def key(self) -> tuple[str, str]:
        """Return the id and the secret of the service account's key."""
        try:
            key = msgspec.json.decode(self.credentials.read_bytes(), type=Credentials)
        except (OSError, msgspec.DecodeError) as error:
            raise CannotUse(
                f"{self.credentials} is no key file: {error}. Make one: gpuaas service-account create NAME --app APP "
                "--key-file FILE"
            ) from error
        return key.key_id, key.client_secret


async def place(site: Site, client: Client, subject: Subject) -> Place:
    """Return where the app can be deployed, or raise `CannotUse`."""
    try:
        free = await _free(site, client)
        version = await _version(site, client, subject)
    except (ApiError, NoAnswer) as error:
        raise CannotUse(f"The platform at {site.server} cannot be used: {error}") from error
    least = feasible.needed(subject.manifest, subject.driver)
    if len(free) < least:
        raise CannotUse(
            f"A deploy needs {least} machines, and the project has {len(free)} that no instance uses. Get more: "
            "gpuaas allocation request"
        )
    return Place(client, site.project, subject, free, version=version)


async def _free(site: Site, client: Client) -> dict[str, str]:
    listed = [entry async for entry in client.pages(ALLOCATION_LIST, project_id=site.project)]
    free = {
        entry.node_name: entry.allocation_id
        for entry in listed
        if entry.status == "active" and not entry.used_by_instance_ids
    }
    if unknown := [name for name in site.machines if name not in free]:
        raise CannotUse(
            f"{', '.join(unknown)} cannot be used: it is no machine of the project, or an instance uses it. Look: "
            "gpuaas get allocations"
        )
    return {name: free[name] for name in site.machines} or free


async def _version(site: Site, client: Client, subject: Subject) -> str:
    """Return the version that a deploy uses: the one before, if the project has it."""
    newest, before = subject.manifest.version, plan.previous_version(subject.manifest)
    where: dict[str, Any] = {"project_id": site.project, "app_slug": subject.manifest.slug}
    try:
        await client.call(PROJECT_APP_GET, version=newest, **where)
    except NotFound as error:
        slug = subject.manifest.slug
        raise CannotUse(
            f"The project cannot deploy {slug} {newest}. Next: gpuaas app register MANIFEST, gpuaas app publish {slug} "
            f"{newest}, gpuaas app entitle {slug}"
        ) from error
    try:
        await client.call(PROJECT_APP_GET, version=before, **where)
    except NotFound:
        return newest
    return before
