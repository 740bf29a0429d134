"""Run the checks on a real platform, one after the other: they share the machines of the project."""

import datetime
from collections.abc import Collection

from gpuaas_contract.controllers import CONTROLLER_LIST
from gpuaas_contract.errors import ApiError

from gpuaas_sdk.conformance import plan
from gpuaas_sdk.conformance.checks import CHECKS
from gpuaas_sdk.conformance.controllers import Subject
from gpuaas_sdk.conformance.real import checks, feasible
from gpuaas_sdk.conformance.real import site as sites
from gpuaas_sdk.conformance.real.checks import RealTrial
from gpuaas_sdk.conformance.real.requests import Place
from gpuaas_sdk.conformance.real.site import CannotUse, Site
from gpuaas_sdk.conformance.real.stage import PREFIX
from gpuaas_sdk.conformance.run import Show, judged
from gpuaas_sdk.conformance.verdicts import Failed, NotApplicable, ScoreCard
from gpuaas_sdk.outcomes import NoAnswer

SEEN_LATELY = datetime.timedelta(seconds=60)
"""A controller that sent a request in this time is at work."""


async def run(
    subject: Subject,
    site: Site,
    *,
    only: Collection[str] = (),
    kinds: Collection[str] = (),
    show: Show = lambda verdict: None,
) -> ScoreCard:
    """Run the checks that are possible on a real platform, and return the verdicts of all. Raise `CannotUse` if the
    platform, the project or its machines cannot be used.

    `only` selects checks by name, `kinds` limits the operations that are tried. `show` gets each verdict as soon as it
    is known.

        card = await real.run(Subject.of(manifest, ("gpuaas-hello",), HelloDriver()), site)"""
    site.key()
    verdicts = []
    async with site.client() as client:
        trial = await _trial(subject, site, await sites.place(site, client, subject), kinds)
        for name in (name for name in CHECKS if not only or name in only):
            verdict = await judged(name, CHECKS[name].claim, _attempt(name, trial))
            verdicts.append(verdict)
            show(verdict)
    return ScoreCard(subject.manifest.slug, subject.manifest.version, verdicts)


async def _trial(subject: Subject, site: Site, place: Place, kinds: Collection[str]) -> RealTrial:
    await _check_alone(place)
    manifest, driver = subject.manifest, subject.driver
    moves = plan.tour(manifest, driver, kinds)
    upgrades = place.version != manifest.version
    return RealTrial(site, place, feasible.tour(manifest, driver, moves, len(place.allocation_ids), upgrades=upgrades))


async def _check_alone(place: Place) -> None:
    """Refuse a project in which another controller of the app works: it would do what the kit's controllers must."""
    now, slug = datetime.datetime.now(datetime.UTC), place.subject.manifest.slug
    async for entry in place.client.pages(CONTROLLER_LIST, project_id=place.project_id):
        is_other = entry.app_slug == slug and not entry.holder.startswith(PREFIX)
        if is_other and now - entry.last_seen_at < SEEN_LATELY:
            raise CannotUse(
                f"The controller {entry.holder} of {slug} works in the project. Stop it while the checks run, and wait "
                f"{SEEN_LATELY.seconds} s"
            )


async def _attempt(name: str, trial: RealTrial) -> str:
    """Run one check. Return what it did not try."""
    if name not in checks.REAL:
        raise NotApplicable(f"not on a real platform: {checks.LEFT_OUT[name]}")
    try:
        await checks.REAL[name](trial)
    except (ApiError, NoAnswer) as error:
        fix = error.fix or "Try the same with the command line of gpuaas."
        raise Failed(f"the platform answered: {error}", fix, "environment problem") from error
    if name != "operations":
        return ""
    subject = trial.place.subject
    return plan.note({**plan.left_out(subject.manifest, subject.driver), **trial.tour.left_out})
