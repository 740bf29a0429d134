"""Checks of a run without faults."""

from gpuaas_sdk.conformance import plan, stage
from gpuaas_sdk.conformance.registry import check
from gpuaas_sdk.conformance.trial import Trial
from gpuaas_sdk.conformance.verdicts import Failed, NotApplicable


@check("operations", "Every operation of the manifest succeeds, and the app then works on each member that is ready.")
async def operations(trial: Trial) -> str:
    """Return which operations the kit could not try: a card must not look as if they had succeeded."""
    await trial.check_undisturbed()
    return "" if trial.kinds else plan.note(plan.left_out(trial.manifest, trial.driver))


@check("version-reporting", "The version that a member shows is the version that runs on its machine.")
async def version_reporting(trial: Trial) -> None:
    reference, compared = await trial.reference(), 0
    for move, versions in reference.versions.items():
        for member in reference.members[move]:
            runs = versions[member.member_id]
            compared += runs is not None
            if runs is not None and member.observed_version != runs:
                raise Failed(
                    f"after {move} the member on {member.node_name} shows version {member.observed_version!r}, "
                    f"and {runs!r} runs there",
                    "Read the version from the machine and report it: op.report(member, version=…).",
                    "read-model surface",
                )
    if not compared:
        raise NotApplicable("the driver reads no version (Driver.version)")


@check("residue", "A machine is as it was before, after the app has left it.")
async def residue(trial: Trial) -> None:
    reference = await trial.reference()
    last = trial.moves[-1]
    if last.kind != "decommission":
        raise NotApplicable("the decommission was not selected")
    if different := stage.difference(reference.empty, reference.after[last]):
        raise Failed(
            f"after {last} {different}",
            "Remove what the app has placed on the machine, and report what must stay with op.report(left=…).",
        )


@check("health-promises", "Every health condition that the manifest lists is reported after a deploy.")
async def health_promises(trial: Trial) -> None:
    if not trial.manifest.health:
        raise NotApplicable("the manifest lists no health conditions")
    async with trial.stage() as on:
        await on.perform(trial.move("deploy"))
        missing = await on.unreported(set(trial.manifest.health))
        if missing:
            raise Failed(
                f"{', '.join(sorted(missing))} was not reported within {trial.driver.silent_s:g} s after the deploy",
                "Report it in the health handler, or remove it from `health` of the manifest.",
                "read-model surface",
            )


@check("restart-between-operations", "The app needs nothing from the memory of a controller that has ended.")
async def restart_between_operations(trial: Trial) -> None:
    reference = await trial.reference()
    async with trial.stage() as on:
        for move in trial.moves[:4]:
            await on.perform(move)
            trial.check_serving(on, move)
            if different := stage.difference(reference.after[move], on.states()):
                raise Failed(
                    f"another process of the controller leaves another result: after {move} {different}",
                    "Keep secrets with op.secret, and everything else on the platform or on the machine.",
                )
            await on.kill(next(iter(on.controllers)))
            await on.start()
