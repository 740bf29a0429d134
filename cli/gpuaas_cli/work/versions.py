"""Find the version of an app that a project may deploy, and the manifest of an instance's version."""

from gpuaas_contract.catalog import PROJECT_APP_GET, PROJECT_APP_LIST, AppVersion, Manifest
from gpuaas_contract.errors import NotFound
from gpuaas_contract.instances import Instance

from gpuaas_cli import failures
from gpuaas_cli.client.session import Session


async def find(session: Session, app_slug: str, version: str) -> AppVersion:
    """Return this version if the project may deploy it; without a version, the newest one that it may deploy."""
    offered = await session.every(PROJECT_APP_LIST)
    matching = [item for item in offered if item.app_slug == app_slug and version in ("", item.version)]
    if matching:
        return max(matching, key=lambda item: item.created_at)
    others = sorted(item.version for item in offered if item.app_slug == app_slug)
    if others:
        message = f"{app_slug} has no version {version} that this project may deploy; it has {', '.join(others)}"
        raise failures.not_found(message, f"gpuaas get apps, then --version {others[-1]}")
    known = ", ".join(f"{item.app_slug}@{item.version}" for item in offered) or "none"
    names = {item.app_slug for item in offered} - {app_slug}
    fix = f"gpuaas get app-offers; if it lists {app_slug}: gpuaas entitlement request {app_slug}"
    message = f"This project may not deploy {app_slug} {version}".rstrip() + f"; it may deploy: {known}"
    raise failures.not_found(f"{message}{failures.hint(app_slug, names)}", fix)


async def manifest(session: Session, instance: Instance) -> Manifest:
    try:
        version = await session.call(PROJECT_APP_GET, app_slug=instance.app_slug, version=instance.app_version)
    except NotFound as error:
        message = f"{instance.app_slug} {instance.app_version} is not among the apps of this project any more"
        raise failures.not_found(message, f"gpuaas app entitle {instance.app_slug}") from error
    return version.manifest
