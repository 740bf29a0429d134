"""Log lines, metrics and spans for operators: per request one log line, one measurement and, if configured, one span.

`http` calls it for every request; `health` serves the metrics. Labels are names from the contract, never ids.
"""

import bisect
import datetime
import importlib
import itertools
from collections.abc import Callable

import msgspec
import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gpuaas_platform.call import Site
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.kit.traces import Span, Spans, Trace

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
_DURATIONS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics(Collector):
    """The metrics of one application, in their own registry. Metrics that each request changes are plain numbers; they
    are converted to the library's format only when they are read, so that they add almost no time to a request."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.registry = CollectorRegistry()
        self.in_flight = 0
        self._durations: dict[tuple[str, str, str], _Durations] = {}
        text = "Writers committed together."
        self._group_size = Histogram("gpuaas_store_group_size", text, buckets=_GROUP_SIZES, registry=self.registry)
        name, text = "gpuaas_store_group_duration_seconds", "Time from the first writer of a group to its commit."
        self._group_duration_s = Histogram(name, text, buckets=_DURATIONS_S, registry=self.registry)
        self.replays = self._counter("gpuaas_idempotency_replays", "Mutations answered with the answer given before.")
        self.rate_limited = self._counter("gpuaas_rate_limited", "Requests refused because their caller sent too many.")
        self.denials = self._counter("gpuaas_authorisation_denials", "Requests refused for lack of a permission.")
        self.registry.register(self)

    def request_observer(self, route: str, method: str) -> Callable[[int, float], None]:
        """Return a function that records a status and a duration. Only the event loop calls it, so it needs no lock."""
        known: dict[int, _Durations] = {}

        def observe(status: int, duration_s: float) -> None:
            durations = known.get(status)
            if durations is None:
                labels = (route, method, f"{status // 100}xx")
                durations = known[status] = self._durations.setdefault(labels, _Durations())
            durations.counts[bisect.bisect_left(_DURATIONS_S, duration_s)] += 1
            durations.sum_s += duration_s

        return observe

    def collect(self) -> list[Metric]:
        name, text = "gpuaas_http_request_duration_seconds", "Time from the request's arrival to its answer."
        family = HistogramMetricFamily(name, text, labels=["route", "method", "status"])
        bounds = [*map(floatToGoString, _DURATIONS_S), "+Inf"]
        for labels, observed in self._durations.items():
            buckets = list(zip(bounds, itertools.accumulate(observed.counts), strict=True))
            family.add_metric(labels, buckets, observed.sum_s)
        waiting = self._site.hub.waiting
        return [
            family,
            GaugeMetricFamily("gpuaas_http_requests_in_flight", "Requests being served.", self.in_flight),
            GaugeMetricFamily("gpuaas_long_polls_waiting", "Requests that wait for a change.", waiting),
            *self._gauges(),
        ]

    def _gauges(self) -> list[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for gauge in self._site.gauges:
            family = families.setdefault(gauge.name, GaugeMetricFamily(gauge.name, gauge.text, labels=[*gauge.labels]))
            family.add_metric([*gauge.labels.values()], gauge.read())
        return [*families.values()]

    def group_committed(self, size: int, duration_s: float) -> None:
        self._group_size.observe(size)
        self._group_duration_s.observe(duration_s)

    def text(self) -> bytes:
        return prometheus_client.generate_latest(self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)


class _Durations:
    """Histogram of the durations of requests with the same route, method and status class."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(_DURATIONS_S) + 1)
        """Requests per bucket, not cumulative. The last bucket counts requests that took longer than every bound."""
        self.sum_s = 0.0


class RequestLine(msgspec.Struct, frozen=True, gc=False):
    """The log line of a request. It has no headers and no body, because these can contain secrets."""

    timestamp: datetime.datetime
    route: str
    method: str
    status: int
    code: str
    correlation_id: str
    trace_id: str
    org_id: str
    project_id: str
    actor: str
    ms: float
    event: str = "request"
    level: str = "info"


_ATTRIBUTES = ("code", "correlation_id", "org_id", "project_id", "actor")


def span_of(line: RequestLine, trace: Trace) -> Span:
    """Return the span of a request that has just ended."""
    return Span(
        name=line.route,
        trace=trace,
        kind="server",
        started_at=line.timestamp - datetime.timedelta(milliseconds=line.ms),
        ended_at=line.timestamp,
        failed=line.status >= 500,
        attributes={
            "http.request.method": line.method,
            "http.response.status_code": line.status,
            **{f"gpuaas.{name}": getattr(line, name) for name in _ATTRIBUTES},
        },
    )


def open_spans(settings: Settings) -> Spans | None:
    """Return the span exporter, or None if none is configured. Its packages are optional, so it is imported here."""
    if not settings.otlp_endpoint:
        return None
    module = importlib.import_module("gpuaas_platform.edge.otlp")
    spans: Spans = module.OtlpSpans(settings.otlp_endpoint)
    return spans
