"""Format the conformance card of an app version for `gpuaas app card`."""

from gpuaas_contract.conformance import AttachedStatement, ConformanceCheck

from gpuaas_cli.output import Lines
from gpuaas_cli.show.steps import moment


def page(attached: AttachedStatement) -> Lines:
    card = attached.card
    counts = ", ".join(f"{count} {result}" for result, count in card.counts.items())
    verdict = "conforms" if card.conforming else "does not conform"
    trust = "" if card.trusted else "  NOT TRUSTED: the key that signed the card was revoked"
    return [
        f"{attached.app_slug} {attached.version} {verdict}: {counts}{trust}",
        f"run {moment(card.completed_at)} with kit {card.kit_version}",
        f"manifest {card.manifest_digest}",
        *(f"signed by {signer}" for signer in card.signers),
        f"attached {moment(card.attached_at)} by {card.attached_by}",
        "",
        *(_line(check) for check in card.checks),
    ]


def _line(check: ConformanceCheck) -> str:
    return f"{check.result:<16}{check.name}" + (f": {check.reason}" if check.reason else "")
