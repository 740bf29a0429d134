"""Settings of the console, built once in `main`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    server: str
    """Address of the platform."""
    host: str = "127.0.0.1"
    port: int = 7071
    ca_file: Path | None = None
    """Certificate authority of the platform; none for plain HTTP on loopback and for public authorities."""
    links: Path | None = None
    """Folder with the one-time sign-in links; none: people sign in with a password or the identity provider."""
    https: bool = False
    """A proxy in front of the console serves HTTPS, so cookies are sent over HTTPS only."""
