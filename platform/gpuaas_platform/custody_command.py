"""`gpuaas-platform custody rotate`: take the key out of use that wraps every secret. `main` hands its options here."""

import argparse
import asyncio
import sys

from gpuaas_platform import server
from gpuaas_platform.kit import custody
from gpuaas_platform.kit.embedded_custody import FILE, EmbeddedCustody
from gpuaas_platform.kit.settings import Settings

_EXAMPLES = f"""examples:
  gpuaas-platform custody rotate --data ./cloud
      a new key in ./cloud/{FILE}, with the server running or not; interrupted, run it again
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> list[argparse.ArgumentParser]:
    """The parsers of the commands below `custody`; the caller adds the options all commands have."""
    style = argparse.RawDescriptionHelpFormatter
    found = commands.add_parser("custody", help="care for the keys of secrets", epilog=_EXAMPLES, formatter_class=style)
    acts = found.add_subparsers(dest="act", required=True)
    return [acts.add_parser("rotate", help="replace the key", epilog=_EXAMPLES, formatter_class=style)]


def run(settings: Settings) -> int:
    try:
        asyncio.run(_rotate(settings))
    except custody.CustodyError as error:
        sys.stderr.write(f"gpuaas-platform: the key could not be rotated: {error}\n")
        sys.stderr.write("Nothing is lost. Next: gpuaas-platform custody rotate, again\n")
        return 2
    return 0


async def _rotate(settings: Settings) -> None:
    async with server.open_site(settings) as site:
        async for said in EmbeddedCustody(site.database, settings.data_dir).rotate():
            sys.stdout.write(f"{said}\n")
