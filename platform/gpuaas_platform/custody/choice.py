"""Which custody the settings ask for. `server` opens it; the `custody` command works on the embedded one."""

import importlib

from gpuaas_platform.custody import key_files
from gpuaas_platform.custody import port as custody
from gpuaas_platform.custody.embedded import EmbeddedCustody
from gpuaas_platform.custody.key_files import GivenFile, KeyFile, KeyRing, PlainFile, SealedFile
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings


def opened(settings: Settings, database: db.Database) -> custody.SecretStore:
    return _vault(settings) if settings.vault_address else embedded(settings, database)


def embedded(settings: Settings, database: db.Database) -> EmbeddedCustody:
    return EmbeddedCustody(database, KeyRing(key_file(settings)))


def key_file(settings: Settings) -> KeyFile:
    if settings.custody_key_file is not None:
        return GivenFile(settings.custody_key_file)
    plain, sealed = settings.data_dir / key_files.PLAIN, settings.data_dir / key_files.SEALED
    if not settings.sealed and not sealed.exists():
        return PlainFile(plain)
    if plain.exists():
        raise custody.Unreadable(
            f"{plain} holds the key in the clear; seal it: gpuaas-platform custody seal --data {settings.data_dir}"
        )
    return SealedFile(sealed)


def _vault(settings: Settings) -> custody.SecretStore:
    """Loaded only where it is asked for: its client is an optional package."""
    try:
        module = importlib.import_module("gpuaas_platform.custody.vault")
    except ImportError as error:
        raise custody.Unavailable("the package hvac is missing; install gpuaas-platform[vault]") from error
    store: custody.SecretStore = module.VaultCustody(
        settings.vault_address,
        token_file=settings.vault_token_file,
        mount=settings.vault_mount,
        prefix=settings.vault_prefix,
        ca_file=settings.vault_ca_file,
    )
    return store
