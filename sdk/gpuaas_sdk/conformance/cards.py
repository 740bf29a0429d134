"""A score card for people, programs and CI: text, JSON, JUnit XML, and the report of gaps by class. Pure."""

from xml.etree import ElementTree

import msgspec

from gpuaas_sdk.conformance.verdicts import GAPS, Result, ScoreCard, Verdict

_MARKS: dict[Result, str] = {"passed": "pass", "failed": "FAIL", "not applicable": "n/a "}


def line(verdict: Verdict) -> str:
    """Return the verdict as lines of text: one, and two more for a failure."""
    head = f"{_MARKS[verdict.result]}  {verdict.check:<28}{verdict.took_s:5.1f} s  {verdict.claim}"
    if verdict.result == "failed":
        return f"{head}\n      {verdict.reason}\n      {verdict.fix} ({verdict.gap})"
    return f"{head}\n      {verdict.reason}" if verdict.reason else head


def summary(card: ScoreCard) -> str:
    """Return the last line of the text."""
    counts = ", ".join(f"{card.count(result)} {result}" for result in _MARKS)
    verdict = "conforms" if card.conforms else "does not conform"
    return f"{card.app} {card.version} {verdict}: {counts}"


def as_json(card: ScoreCard) -> str:
    """Return the score card as JSON."""
    return msgspec.json.format(msgspec.json.encode(card), indent=2).decode() + "\n"


def as_junit(card: ScoreCard) -> str:
    """Return the score card as JUnit XML, one test case for each check."""
    counts = {"failures": card.count("failed"), "skipped": card.count("not applicable"), "tests": len(card.verdicts)}
    took_s = sum(verdict.took_s for verdict in card.verdicts)
    attributes = {"name": f"conformance of {card.app} {card.version}", "time": f"{took_s:.1f}"}
    suite = ElementTree.Element("testsuite", attributes | {name: str(count) for name, count in counts.items()})
    for verdict in card.verdicts:
        case = ElementTree.SubElement(suite, "testcase", name=verdict.check, time=f"{verdict.took_s:.1f}")
        if verdict.result == "failed":
            ElementTree.SubElement(case, "failure", message=verdict.reason, type=verdict.gap or "").text = verdict.fix
        elif verdict.result == "not applicable":
            ElementTree.SubElement(case, "skipped", message=verdict.reason)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def as_report(card: ScoreCard) -> str:
    """Return the local-validation report: each gap under its class."""
    lines = [f"# Local validation of {card.app} {card.version}", "", summary(card), ""]
    for gap in GAPS:
        gaps = [verdict for verdict in card.verdicts if verdict.gap == gap]
        lines += [f"## {gap.capitalize()}: {len(gaps)}", ""]
        for verdict in gaps:
            lines += [f"- `{verdict.check}`: {verdict.reason}. {verdict.fix}"]
        lines += [""] if gaps else []
    open_checks = [verdict for verdict in card.verdicts if verdict.result == "not applicable"]
    lines += ["## Not checked", ""] + [f"- `{verdict.check}`: {verdict.reason}" for verdict in open_checks]
    return "\n".join(lines).rstrip() + "\n"
