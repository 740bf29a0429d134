"""The command line of the conformance kit for one app. An app calls `main` with its driver.

With `--credentials` the checks run on a real platform, see `real`; without it, on the fake platform."""

import argparse
import asyncio
import datetime
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
import yaml
from gpuaas_contract import characters
from gpuaas_contract.catalog import Manifest

from gpuaas_sdk import signatures
from gpuaas_sdk.conformance import cards, real, statement
from gpuaas_sdk.conformance.checks import ALL, CHECKS
from gpuaas_sdk.conformance.controllers import Subject
from gpuaas_sdk.conformance.driver import Driver
from gpuaas_sdk.conformance.real import CannotUse, Site
from gpuaas_sdk.conformance.run import run
from gpuaas_sdk.conformance.verdicts import ScoreCard, Verdict

EXIT_FAILED = 1
EXIT_ENVIRONMENT = 2
EXIT_USAGE = 64
MANIFEST_S = 60.0
"""How long the controller may take to print its manifest."""
EXIT_SIGNAL = 128
"""The number of the signal is added."""


def main(driver: Driver, command: Sequence[str], argv: Sequence[str] | None = None) -> int:
    """Run the conformance kit and return the exit status. `command` starts the app's controller, without `run`.

    0: no check failed and at least one passed. 1: otherwise. 2: the controller, the driver, the platform or a file
    for results cannot be used. 64: the command line is wrong. 143, 130: SIGTERM or SIGINT stopped the run.

        sys.exit(conformance.main(DRIVER, (sys.executable, "-m", "gpuaas_app_hello.controller")))"""
    try:
        options = _parse(argv)
        site, key = _site(options), _signing_key(options)
        _check_folders(options)
    except _UsageError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    if options.list:
        sys.stdout.write("".join(f"{name:<28}{CHECKS[name].claim}\n" for name in ALL))
        return 0
    try:
        manifest = _manifest(command)
        registered = _registered(options.manifest, manifest)
    except (_CannotStart, _UsageError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE if isinstance(error, _UsageError) else EXIT_ENVIRONMENT
    subject = Subject.of(manifest, command, driver)
    try:
        card = asyncio.run(_until_stopped(subject, options, site))
    except CannotUse as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_ENVIRONMENT
    except _Stopped as stop:
        sys.stderr.write(f"stopped by {stop.number.name}: not all checks have run\n")
        return EXIT_SIGNAL + stop.number
    except SystemExit as stop:  # `sys.exit(0)` in a driver would look like a success
        sys.stderr.write(f"the driver ended the run with status {stop.code}: not all checks have run\n")
        return EXIT_ENVIRONMENT
    try:
        _write(card, options)
        if key is not None:
            now = datetime.datetime.now(datetime.UTC)
            _put(options.card, statement.signed(card, registered, key, now))
    except OSError as error:
        sys.stderr.write(f"{error.filename} cannot be written: {error.strerror}\n")
        return EXIT_ENVIRONMENT
    return 0 if card.conforms else EXIT_FAILED


class _UsageError(Exception):
    pass


class _CannotStart(Exception):
    pass


class _Stopped(Exception):
    def __init__(self, number: signal.Signals) -> None:
        self.number = number


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(f"{message}. See: {self.prog} --help")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        description="Prove that the app's controller is sound: it runs against a fake platform with simulated "
        "machines, and is killed, paused, cancelled and cut off from machines.",
        epilog="Example: %(prog)s --check residue --check kill-at-every-step --junit conformance.xml",
    )
    parser.add_argument("--check", action="append", default=[], metavar="NAME", choices=ALL, help="run only this check")
    parser.add_argument("--kind", action="append", default=[], metavar="KIND", help="try only this kind of operation")
    parser.add_argument("--list", action="store_true", help="print the checks and what each tries to disprove")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="checks at the same time (default 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the score card as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the score card as JUnit XML")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the gaps by class, as Markdown")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="sign the whole score card with this private key")
    parser.add_argument(
        "--manifest",
        type=Path,
        metavar="FILE",
        help="the registered manifest that the card is about, if its version and artifacts differ from the app's own",
    )
    parser.add_argument("--card", type=Path, metavar="FILE", help="the signed card (default conformance.dsse)")
    real_platform = parser.add_argument_group(
        "on a real platform", "GPUAAS_TOKEN is the token of the person who requests the operations."
    )
    add = real_platform.add_argument
    add("--credentials", type=Path, metavar="FILE", help="key file of the app's service account in the project")
    add("--server", default="", metavar="URL", help="the platform")
    add("--project", default="", metavar="NAME", help="the project, which may deploy the app")
    add("--ca-file", type=Path, metavar="FILE", help="certificate authority of the platform")
    add("--machine", action="append", default=[], metavar="NAME", help="a machine to use; default: all that are free")
    return parser.parse_args(argv)


def _site(options: argparse.Namespace) -> Site | None:
    """Return the platform on which the checks run; None: the fake one."""
    if options.credentials is None:
        for name in ("server", "project", "ca_file", "machine"):
            if getattr(options, name):
                raise _UsageError(f"--{name.replace('_', '-')} needs --credentials FILE")
        return None
    if options.sign is not None:
        raise _UsageError("--sign needs all checks, and a real platform allows some of them: leave out --credentials")
    token = os.environ.get("GPUAAS_TOKEN", "")
    if not (options.server and options.project and token):
        raise _UsageError("--credentials needs --server URL, --project NAME and the variable GPUAAS_TOKEN")
    return Site(options.server, options.project, token, options.credentials, options.ca_file, options.machine)


def _signing_key(options: argparse.Namespace) -> signatures.SigningKey | None:
    """Return the key for the card, read before the checks run. A card has all checks: a part would look conforming."""
    if options.sign is None:
        for name in ("card", "manifest"):
            if getattr(options, name) is not None:
                raise _UsageError(f"--{name} needs --sign KEY")
        return None
    if options.check or options.kind:
        raise _UsageError("--sign needs the whole run: leave out --check and --kind")
    options.card = options.card or Path("conformance.dsse")
    try:
        return signatures.read_key(options.sign.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise _UsageError(f"{options.sign} cannot be used to sign: {reason}") from error


def _check_folders(options: argparse.Namespace) -> None:
    """Refuse a file in a folder that does not exist, before the checks run for minutes."""
    for file in (options.json, options.junit, options.report, options.card):
        if file is not None and not file.parent.is_dir():
            raise _UsageError(f"{file} cannot be written: there is no folder {file.parent}")


def _registered(file: Path | None, tested: Manifest) -> Manifest:
    """Return the manifest that the card is about. A release sets the version and the digests of artifacts; with any
    other difference, the card would be about an app that was not tested."""
    if file is None:
        return tested
    try:
        registered = msgspec.convert(yaml.safe_load(file.read_text()), Manifest)
    except (OSError, ValueError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise _UsageError(f"{file} is no manifest: {error}") from error
    as_tested = msgspec.structs.replace(registered, version=tested.version, artifacts=tested.artifacts)
    differing = [name for name in Manifest.__struct_fields__ if getattr(as_tested, name) != getattr(tested, name)]
    if differing:
        raise _UsageError(f"{file} is not the manifest that is tested; these fields differ: {', '.join(differing)}")
    return registered


def _manifest(command: Sequence[str]) -> Manifest:
    shown = " ".join(command)
    try:
        printed = subprocess.run([*command, "manifest"], capture_output=True, check=True, timeout=MANIFEST_S).stdout
        return msgspec.json.decode(printed, type=Manifest)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        status, last = error.returncode, characters.clean(reason[0])
        raise _CannotStart(f"`{shown} manifest` ended with status {status}: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise _CannotStart(f"`{shown} manifest` did not end within {MANIFEST_S:g} s") from error
    except OSError as error:
        raise _CannotStart(f"`{shown}` cannot be started: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # the last ones: no UTF-8, nested too deep
        raise _CannotStart(f"`{shown} manifest` printed no manifest: {error}") from error


async def _until_stopped(subject: Subject, options: argparse.Namespace, site: Site | None) -> ScoreCard:
    """Run the checks. A signal cancels them, so that they end their controllers and delete their folders."""
    work, stopped_by = asyncio.create_task(_shown(subject, options, site)), list[signal.Signals]()

    def stop(number: signal.Signals) -> None:
        if not stopped_by:
            work.cancel()  # only once: another one would interrupt the clean-up
        stopped_by.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    await asyncio.wait({work})
    if work.cancelled():
        raise _Stopped(stopped_by[0])
    return work.result()


async def _shown(subject: Subject, options: argparse.Namespace, site: Site | None) -> ScoreCard:
    def show(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def show_verdict(verdict: Verdict) -> None:
        show(cards.line(verdict))

    if site is None:
        at_once = max(1, options.at_once)
        card = await run(subject, only=options.check, kinds=options.kind, at_once=at_once, show=show_verdict)
    else:
        card = await real.run(subject, site, only=options.check, kinds=options.kind, show=show_verdict)
    show(cards.summary(card))
    return card


def _write(card: ScoreCard, options: argparse.Namespace) -> None:
    for path, render in (
        (options.json, cards.as_json),
        (options.junit, cards.as_junit),
        (options.report, cards.as_report),
    ):
        if path is not None:
            _put(path, render(card).encode())


def _put(path: Path, content: bytes) -> None:
    """Write a file for results. The error names the file also if it could be opened, for example on a full disk."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
