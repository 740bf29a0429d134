"""Make the package sources of machines from the Debian package sources of the host. Pure; used by `host.py`."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

SUITE = "trixie"
DEFAULT_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

_DEBIAN_CODENAMES = frozenset({"buster", "bullseye", "bookworm", "trixie", "forky", "duke", "sid"})
_DEBIAN_SUITES = _DEBIAN_CODENAMES | {"oldoldstable", "oldstable", "stable", "testing", "unstable"}
_KEPT_SUFFIXES = ("", "-updates", "-security")
_PASSED_OPTIONS = (
    r"Acquire::(http|https|ftp)::.*",
    r"Acquire::(Check-Valid-Until|Check-Date|Retries|ForceIPv[46]|AllowInsecureRepositories|AllowWeakRepositories)",
)


@dataclass(frozen=True)
class Source:
    """One line of apt sources: an archive, a suite and its components."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""
    trusted: bool = False

    def line(self) -> str:
        options = ["trusted=yes"] if self.trusted else [f"signed-by={self.signed_by or DEFAULT_KEYRING}"]
        return f"deb [{' '.join(options)}] {self.uri} {self.suite} {' '.join(self.components)}"


def brings_own_keys(source: Source) -> bool:
    """Return whether this archive is trusted without keys, or verified with keys that are not in Debian's package."""
    return source.trusted or PurePath(source.signed_by).stem not in ("", PurePath(DEFAULT_KEYRING).stem)


def for_lab(sources: Iterable[Source]) -> list[Source]:
    """Return the Debian archives of the host, with the Debian release of the lab; leave out other archives."""
    by_archive: dict[tuple[str, str], Source] = {}
    for source in sources:
        name, dash, rest = source.suite.strip("/").partition("-")
        suffix = dash + rest
        if name not in _DEBIAN_SUITES or suffix not in _KEPT_SUFFIXES or "main" not in source.components:
            continue
        suite = SUITE + suffix
        by_archive.setdefault(
            (source.uri, suite), Source(source.uri, suite, ("main",), source.signed_by, source.trusted)
        )
    # Archives of updates are not enough: a system needs the main suite.
    return list(by_archive.values()) if any(suite == SUITE for _, suite in by_archive) else []


def parse_one_line(text: str) -> list[Source]:
    """Parse the one-line format of sources.list."""
    pattern = re.compile(r"^deb\s+(?:\[(?P<options>[^]]*)]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s*(?P<components>[^#]*)")
    sources = []
    for line in text.splitlines():
        if match := pattern.match(line.strip()):
            options = dict(part.partition("=")[::2] for part in (match["options"] or "").split())
            sources.append(
                Source(
                    match["uri"],
                    match["suite"],
                    tuple(match["components"].split()),
                    _keyring_path(options.get("signed-by", "")),
                    options.get("trusted", "").lower() == "yes",
                )
            )
    return sources


def parse_deb822(text: str) -> list[Source]:
    """Parse the format of *.sources files, which has one paragraph per source."""
    sources = []
    for fields in _stanzas(text):
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false"):
            continue
        signed_by = _keyring_path(fields.get("signed-by", ""))
        trusted = fields.get("trusted", "").lower() == "yes"
        components = tuple(fields.get("components", "").split())
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                sources.append(Source(uri, suite, components, signed_by, trusted))
    return sources


def passed_options(apt_config_dump: str) -> list[str]:
    """Return the host's proxy and download settings, as lines of apt configuration."""
    wanted = re.compile("|".join(_PASSED_OPTIONS), re.IGNORECASE)
    lines = (line.strip() for line in apt_config_dump.splitlines())
    return [line for line in lines if wanted.fullmatch(line.partition(" ")[0]) and not line.endswith('"";')]


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    without_comments = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for block in re.split(r"\n\s*\n", without_comments):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            if line[:1].isspace() and name:
                fields[name] += " " + line.strip()
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if fields:
            yield fields


def _keyring_path(value: str) -> str:
    # Signed-By can also contain a key or fingerprints; only the path of a file is supported.
    return value if value.startswith("/") and " " not in value else ""
