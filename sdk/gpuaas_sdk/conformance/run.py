"""Run checks of an app and collect their verdicts."""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Collection

from gpuaas_sdk.conformance.checks import CHECKS
from gpuaas_sdk.conformance.controllers import Subject
from gpuaas_sdk.conformance.registry import CheckSpec
from gpuaas_sdk.conformance.trial import Reference, Trial
from gpuaas_sdk.conformance.verdicts import Failed, NotApplicable, ScoreCard, Verdict

Show = Callable[[Verdict], None]


async def run(
    subject: Subject,
    *,
    only: Collection[str] = (),
    kinds: Collection[str] = (),
    at_once: int = 2,
    show: Show = lambda verdict: None,
    reference: Reference | None = None,
) -> ScoreCard:
    """Run the checks, `at_once` at a time, and return their verdicts in the order of the score card.

    `only` selects checks by name, `kinds` limits the operations that are tried. `show` gets each verdict as soon as it
    is known. `reference` replaces the undisturbed run, if it was made before.

        card = await conformance.run(Subject(manifest, ("gpuaas-app-hello",), HelloDriver()), only=["residue"])"""
    trial, slots = Trial(subject, kinds, reference), asyncio.Semaphore(at_once)

    async def one(spec: CheckSpec) -> Verdict:
        async with slots:
            verdict = await judged(spec.name, spec.claim, spec.run(trial))
        show(verdict)
        return verdict

    chosen = [spec for name, spec in CHECKS.items() if not only or name in only]
    verdicts = await asyncio.gather(*map(one, chosen))
    return ScoreCard(subject.manifest.slug, subject.manifest.version, list(verdicts))


async def judged(name: str, claim: str, attempt: Awaitable[str | None]) -> Verdict:
    """Return the verdict of a check. The attempt returns what it left out, or raises why it failed."""
    started, failed, skipped, note = time.monotonic(), None, "", ""
    try:
        note = await attempt or ""
    except Failed as error:
        failed = error
    except NotApplicable as error:
        skipped = str(error)
    except OSError as error:
        fix = "Start the controller by hand: does its command exist?"
        failed = Failed(f"{type(error).__name__}: {error}", fix, "environment problem")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the driver is code of the app: it must not end the other checks
        failed = _of_driver(error)
    took_s = round(time.monotonic() - started, 1)
    if failed is not None:
        reason = _printable(failed.reason)  # it may quote a machine
        return Verdict(name, claim, "failed", took_s, reason, failed.fix, failed.gap)
    return Verdict(name, claim, "not applicable" if skipped else "passed", took_s, _printable(skipped or note))


def _of_driver(error: BaseException) -> Failed:
    """Return the failure of a check in which code raised what the kit does not raise."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Failed(
        f"{type(error).__name__}: {error} ({last.filename}:{last.lineno}, in {last.name})",
        "Correct the driver of the app. If the line belongs to the kit, report it to the platform.",
    )


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
