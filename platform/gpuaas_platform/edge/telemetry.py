"""What the process tells its operators: one log line, one measurement and, when asked for, one span per request.

`http` reports every request here; `health` prints the metrics. Labels are names of the contract, never ids.
"""

import importlib
import random
import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

import prometheus_client
import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpuaas_platform.call import Site

log = structlog.get_logger()

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
_DURATIONS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_RANDOM = random.Random()
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Trace(NamedTuple):
    """Where this request stands in a W3C trace."""

    trace_id: str
    parent_id: str
    """Span of the caller; empty when the trace starts here."""
    span_id: str
    flags: str

    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def trace_of(traceparent: str) -> Trace:
    """Go on with the caller's trace if it is sound, else start one. Nothing rests on these numbers being secret."""
    found = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if found and _is_sound(*found.groups()):
        return Trace(found[2], found[3], f"{_RANDOM.getrandbits(64) | 1:016x}", found[4])
    return Trace(f"{_RANDOM.getrandbits(128) | 1:032x}", "", f"{_RANDOM.getrandbits(64) | 1:016x}", "01")


def _is_sound(version: str, trace_id: str, span_id: str, _: str, more: str | None) -> bool:
    known_form = version != "ff" and not (version == "00" and more)
    return known_form and trace_id.strip("0") != "" and span_id.strip("0") != ""


class Metrics:
    """The counters of one application, in a registry of its own."""

    def __init__(self, site: Site) -> None:
        self.registry = CollectorRegistry()
        self.in_flight = 0
        self._durations_s = Histogram(
            "gpuaas_http_request_duration_seconds",
            "Time from the request's arrival to its answer.",
            ["route", "method", "status"],
            buckets=_DURATIONS_S,
            registry=self.registry,
        )
        self._group_size = Histogram(
            "gpuaas_store_group_size",
            "Writers committed together.",
            buckets=_GROUP_SIZES,
            registry=self.registry,
        )
        self._group_duration_s = Histogram(
            "gpuaas_store_group_duration_seconds",
            "Time from the first writer of a group to its commit.",
            buckets=_DURATIONS_S,
            registry=self.registry,
        )
        self.replays = self._counter("gpuaas_idempotency_replays", "Mutations answered with the answer given before.")
        self.rate_limited = self._counter("gpuaas_rate_limited", "Requests refused because their caller sent too many.")
        self.denials = self._counter("gpuaas_authorisation_denials", "Requests refused for lack of a permission.")
        self.registry.register(_Gauges(self, site))

    def request_observer(self, route: str, method: str) -> Callable[[int, float], None]:
        """A function that takes a status and a duration; labels are looked up once per status class."""
        known: dict[int, Callable[[float], None]] = {}

        def observe(status: int, duration_s: float) -> None:
            hundreds = status // 100
            if hundreds not in known:
                known[hundreds] = self._durations_s.labels(route, method, f"{hundreds}xx").observe
            known[hundreds](duration_s)

        return observe

    def group_committed(self, size: int, duration_s: float) -> None:
        self._group_size.observe(size)
        self._group_duration_s.observe(duration_s)

    def text(self) -> bytes:
        return prometheus_client.generate_latest(self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)


class _Gauges(Collector):
    """Read when asked for, so that keeping them costs the requests nothing."""

    def __init__(self, metrics: Metrics, site: Site) -> None:
        self._metrics, self._site = metrics, site

    def collect(self) -> list[GaugeMetricFamily]:
        return [
            GaugeMetricFamily(
                "gpuaas_http_requests_in_flight", "Requests being served.", value=self._metrics.in_flight
            ),
            GaugeMetricFamily("gpuaas_long_polls_waiting", "Requests that wait for a change.", self._site.hub.waiting),
        ]


class Finished(NamedTuple):
    """A request and its answer, as operators see it. No header, no body: they hold secrets."""

    route: str
    method: str
    status: int
    code: str
    correlation_id: str
    trace: Trace
    org_id: str
    project_id: str
    actor_type: str
    actor_id: str
    started_ns: int
    duration_s: float


class Spans(Protocol):
    def export(self, finished: Finished) -> None: ...

    def close(self) -> None: ...


def open_spans(site: Site) -> Spans | None:
    """The exporter is loaded only where it is configured: its packages are an extra."""
    if not site.settings.otlp_endpoint:
        return None
    module = importlib.import_module("gpuaas_platform.edge.otlp")
    spans: Spans = module.OtlpSpans(site.settings.otlp_endpoint)
    return spans


def write_log(finished: Finished) -> None:
    log.info(
        "request",
        route=finished.route,
        method=finished.method,
        status=finished.status,
        code=finished.code,
        correlation_id=finished.correlation_id,
        trace_id=finished.trace.trace_id,
        org_id=finished.org_id,
        project_id=finished.project_id,
        actor=f"{finished.actor_type}:{finished.actor_id}",
        ms=round(finished.duration_s * 1000, 2),
    )
