"""Backups of a test's platform: make, verify and restore them by the real commands."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import platform_command
from gpuaas_platform import server
from gpuaas_platform.access.machines import authority
from gpuaas_platform.backup import age, check, manifest, tables
from gpuaas_platform.edge import http
from gpuaas_platform.kit.settings import Settings
from platform_command import Result
from platform_world import World


@dataclass(frozen=True)
class Backups:
    source: Settings
    target: Settings
    identity: Path
    recipient: str
    file: Path

    @classmethod
    async def prepared(cls, source: Settings, target: Settings, folder: Path) -> "Backups":
        made = await platform_command.run("backup", "--new-identity", folder / "identity")
        assert made.returncode == 0, made.text
        return cls(source, target, folder / "identity", made.stdout.strip(), folder / "backup")

    async def make(self, *options: str) -> Result:
        arguments = ("backup", "--to", self.file, "--recipient", self.recipient, *options)
        return await platform_command.run(*arguments, on=self.source)

    async def verify(self, *options: str, identity: Path | None = None) -> Result:
        return await platform_command.run(
            "verify", "--from", self.file, "--identity", identity or self.identity, *options
        )

    async def restore(self, *options: str, identity: Path | None = None, into: Settings | None = None) -> Result:
        arguments = ("restore", "--from", self.file, "--identity", identity or self.identity, *options)
        return await platform_command.run(*arguments, on=into or self.target)

    def manifest(self) -> manifest.Manifest:
        return check.check(self.file, age.identities(self.identity), "", lambda _: None).manifest

    @contextlib.asynccontextmanager
    async def restored(self, world: World) -> AsyncIterator[World]:
        """Make a backup, restore it and start."""
        for result in (await self.make(), await self.restore()):
            assert result.returncode == 0, result.text
        async with self.opened(world) as restored:
            yield restored

    @contextlib.asynccontextmanager
    async def opened(self, world: World) -> AsyncIterator[World]:
        """Start the restored platform for the same people and nodes, who have their old tokens."""
        async with server.open_site(self.target, world.clock) as site:
            await authority.start(site)
            transport = httpx.ASGITransport(app=http.application(site, server.DOMAINS), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                yield World(site, world.clock, client, world.token, world.project_id, world.nodes)


async def digests(settings: Settings) -> dict[str, manifest.Digest]:
    """Of every table of a store."""
    async with tables.snapshot(settings) as store:
        return {name: await tables.digest(store, name, columns) for name, columns in (await store.columns()).items()}
