"""Templates and what they use: times, tones of states, links. Templates escape all values."""

import contextvars
import datetime
import json
import re
import shlex
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
import markupsafe
from gpuaas_cli import output
from gpuaas_cli.show import steps, story

_TONES = {
    "good": "running ready succeeded success active published verified approved true healthy promoted clean closed",
    "warn": "degraded draining cordoned deprecated quarantined used unknown drained stopped lost warning refused false",
    "bad": "failed failure release_failed withdrawn revoked failed_verification expired error",
    "busy": "requested deploying provisioning joining accepted starting stopping upgrading rolling_back reconfiguring "
    "deleting removing cancelling releasing pending sanitising queued open",
}
TONES = {state: tone for tone, states in _TONES.items() for state in states.split()}
"""State -> tone. Every other state is `idle`."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that terminals act on, without tab and newline, and those that change the order in which text is shown."""
_CODE = re.compile(r"`([^`\n]+)`")
_REFERENCE = re.compile(r"\b([a-z]+)_[0-9a-z]{26}\b|\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
"""An id or a time in a text of the platform."""
_DOT = re.compile(r"(?<=[a-z])\.(?=[a-z])")
"""Where a long name such as `catalog.version.publish` can be broken."""
_PAGES = {"op": "operations/", "inst": "instances/", "cor": "triage?correlation_id="}
"""Kind of an id -> where a project shows what has it."""
_ACRONYMS = {"gpus": "GPUs", "cpus": "CPUs", "mb": "MB", "id": "id", "sku": "SKU", "ssh": "SSH"}
TIMES = {"relative": "relative", "utc": "UTC", "local": "local"}
"""How a person wants times to be shown -> its label."""
shown_as = contextvars.ContextVar("shown_as", default="relative")
ICONS = {"good": "✓", "warn": "!", "bad": "✕", "busy": "◔", "idle": "–"}


def tone(state: str) -> str:
    return TONES.get(state, "idle")


def tone_of_work(state: str) -> str:
    """Return the tone of an operation or a step: work that runs is not done, while an instance that runs is well."""
    return "busy" if state == "running" else tone(state)


def badge(state: str, text: str = "") -> markupsafe.Markup:
    """Return a state with colour, icon and text."""
    return _badge(tone(state), text or state)


def work(state: str) -> markupsafe.Markup:
    """Return the state of an operation or a step with colour, icon and text."""
    return _badge(tone_of_work(state), state)


def _badge(kind: str, text: str) -> markupsafe.Markup:
    label = text.replace("_", " ")
    return markupsafe.Markup('<span class="badge {}"><span aria-hidden="true">{}</span> {}</span>').format(
        kind, ICONS[kind], label
    )


def when(moment: datetime.datetime | None) -> markupsafe.Markup:
    """Return a time as an age, or as a clock shows it if the person wants that."""
    if moment is None:
        return markupsafe.Markup('<span class="quiet">never</span>')
    if shown_as.get() != "relative":
        return _time(moment, _day(moment))
    ahead = moment > output.now()
    return _time(moment, f"in {output.duration(output.now(), moment)}" if ahead else f"{output.age(moment)} ago")


def clock(moment: datetime.datetime) -> markupsafe.Markup:
    """Return a time that stays one of a clock: in a sentence, and the time from which the ages of a page count."""
    return _time(moment, f"{_day(moment)} UTC", "zone")


def since(moment: datetime.datetime, start: datetime.datetime) -> markupsafe.Markup:
    """Return the time of a line among others: the time since the start, or that of a clock with thousandths."""
    if shown_as.get() == "relative":
        seconds = max(0.0, (moment - start).total_seconds())
        return _time(moment, f"+{seconds:.3f}s" if seconds < 60 else f"+{output.duration(start, moment)}")
    return _time(moment, f"{moment.astimezone(datetime.UTC):%-d %b %H:%M:%S.%f}"[:-3], "fine")


def _time(moment: datetime.datetime, text: str, form: str = "") -> markupsafe.Markup:
    """Return a time with the exact one as title. The script of the page replaces the text by that of a local clock."""
    utc, is_local = moment.astimezone(datetime.UTC), shown_as.get() == "local"
    machine = f"{utc:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" if form == "fine" else output.clock_time(utc)
    local = markupsafe.Markup(' data-local="{}"').format(form) if is_local else ""
    shown = f"{text} UTC" if is_local and form != "zone" else text
    tag = '<time datetime="{}" title="{}"{}>{}</time>'
    return markupsafe.Markup(tag).format(machine, output.clock_time(utc), local, shown)


def _day(moment: datetime.datetime) -> str:
    utc = moment.astimezone(datetime.UTC)
    return f"{utc:%-d %b %H:%M:%S}" if utc.year == output.now().year else f"{utc:%-d %b %Y %H:%M}"


def who(actor: str, session: Any) -> markupsafe.Markup:
    """Return who did something by name, with the id as title. People see themselves, and no one else, as `you`. The
    audit trail has the type before the id."""
    actor_id = actor.rpartition(":")[2]
    name = session.names.get(actor_id, actor)
    other = f"{name} (another user)" if name.lower() == "you" else name
    text = "you" if actor_id == session.me.actor_id else other
    return markupsafe.Markup('<span title="{}">{}</span>').format(actor_id, text)


def references(text: str, session: Any = None, project: str = "") -> markupsafe.Markup:
    """Return a text of the platform with times as people write them, and with ids by name or short, as links. Without
    a session ids stay whole."""

    def shown(match: re.Match[str]) -> str:
        whole, kind = match[0], match[1]
        if not kind:
            try:
                moment = datetime.datetime.fromisoformat(whole)
            except ValueError:  # people can write 30 February
                return whole
            return when(moment) if whole == text else clock(moment)
        if session is None:
            return whole
        url = f"{link('p', project)}/{_PAGES[kind]}{whole}" if project and kind in _PAGES else ""
        tag = '<a class="id" href="{}" title="{}">{}</a>' if url else '<span class="id{}" title="{}">{}</span>'
        return markupsafe.Markup(tag).format(url, whole, session.names.get(whole) or f"{kind}_…{whole[-6:]}")

    escaped = str(markupsafe.escape(text))
    return markupsafe.Markup(_REFERENCE.sub(shown, _DOT.sub(".<wbr>", escaped) if session else escaped))


def prose(text: str) -> markupsafe.Markup:
    """Return a text of the contract with its `code` in backticks as code."""
    return markupsafe.Markup(_CODE.sub(r"<code>\1</code>", str(markupsafe.escape(text))))


def link(*parts: str, **query: Any) -> str:
    """Return the address of a page: `link("p", project, "instances")`."""
    asked = {key: value for key, value in query.items() if value not in ("", None)}
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{urlencode(asked, doseq=True)}" if asked else path


def heading(title: str) -> str:
    """Return a name of a program as people write it: `MEMORY_MB` is `Memory MB`, `SchedulerAnswers` two words."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_.]", " ", title).lower().split()
    text = " ".join(_ACRONYMS.get(word, word) for word in words)
    return text[:1].upper() + text[1:]


def line(*words: str) -> str:
    """Return words as one command of a shell, for people who copy it into a terminal.

    Parts of it can come from the link that opened the page, so control characters of terminals are replaced."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", shlex.join(words))


def options(name: str, *texts: str) -> list[str]:
    """Return an option with each text that is not empty. One that begins with a dash would be an option of its own."""
    return [word for text in texts if text for word in ([f"{name}={text}"] if text[0] == "-" else [name, text])]


def command(words: Sequence[str], arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return a command line whose arguments are not read as options, also if they begin with a dash."""
    if any(argument.startswith("-") and argument != "-" for argument in arguments):
        return [*words, *options, "--", *arguments]
    return [*words, *arguments, *options]


def value(item: Any, names: Mapping[str, str] = types.MappingProxyType({})) -> str:
    """Return a value of an app as text, with the name of an id that has one."""
    if isinstance(item, bool):
        return "yes" if item else "no"
    if item is None or item in ([], {}):
        return ""
    if isinstance(item, list) and all(isinstance(part, str) for part in item):
        return ", ".join(names.get(part, part) for part in item)
    return names.get(item, item) if isinstance(item, str) else json.dumps(item, ensure_ascii=False)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpuaas_console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: list[Callable[..., Any]] = [badge, work, when, tone, who, prose, value, heading, clock, since, references]
    environment.filters |= {function.__name__: function for function in filters}
    environment.globals |= {
        "link": link,
        "line": line,
        "badge": badge,
        "icons": ICONS,
        "ways": TIMES,
        "title_of": steps.title,
        "took": output.duration,
        "log_detail": steps.log_detail,
        "last_look": story.last_look,
        "now": output.now,
    }
    return environment


TEMPLATES = _environment()
LIVE = {name.removeprefix("_") for name in TEMPLATES.list_templates() if name.startswith("_")}
"""Pages that have a live part."""


def render(template: str, times: str = "relative", **values: Any) -> str:
    """Return a page whose times are shown in one of the ways of `TIMES`."""
    known = shown_as.set(times)
    try:
        return TEMPLATES.get_template(template).render(times=times, **values)
    finally:
        shown_as.reset(known)
