"""One trace through the platform and a controller: the W3C context of the running code, and spans of it.

`Client` sends the context with each request. Spans are sent only if an exporter was opened; see `otlp`. Without one,
the context is passed on unchanged, so that the spans of the platform stay in one trace."""

import contextlib
import datetime
import importlib
import os
import random
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

Attributes = Mapping[str, str | int]
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


@dataclass
class Span:
    """A span of the controller. It is exported when it has ended."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    flags: str
    attributes: dict[str, str | int]
    started_at: datetime.datetime
    ended_at: datetime.datetime | None = None
    failed: bool = False


class Spans(Protocol):
    """Sends spans that have ended to a collector."""

    def export(self, span: Span) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Context:
    traceparent: str
    spans: Spans | None = None
    span: Span | None = field(default=None, compare=False)


_CURRENT: ContextVar[_Context | None] = ContextVar("gpuaas_trace", default=None)


def traceparent() -> str:
    """Return the W3C header for requests of the running code; empty if it runs in no trace."""
    context = _CURRENT.get()
    return context.traceparent if context is not None else ""


@contextlib.contextmanager
def continued(parent: str, spans: Spans | None, name: str, attributes: Attributes) -> Iterator[None]:
    """Continue the trace of a request that the platform accepted. With an exporter, the body is a span of it."""
    if spans is None or not parent:
        with _entered(_Context(parent)):
            yield
        return
    with _running(spans, parent, name, attributes):
        yield


@contextlib.contextmanager
def detached() -> Iterator[None]:
    """Run the body outside of the trace: regular requests of a long operation would make the trace too large."""
    before = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(before)


@contextlib.contextmanager
def span(name: str, attributes: Attributes) -> Iterator[None]:
    """Make the body a span of the running trace. Without an exporter this does nothing."""
    context = _CURRENT.get()
    if context is None or context.spans is None:
        yield
        return
    with _running(context.spans, context.traceparent, name, attributes):
        yield


def add(name: str, started_at: datetime.datetime, duration_ms: int, *, failed: bool, attributes: Attributes) -> None:
    """Add a span for work that has ended."""
    context = _CURRENT.get()
    if context is None or context.spans is None:
        return
    added = _new(context.traceparent, name, attributes, started_at)
    added.ended_at, added.failed = started_at + datetime.timedelta(milliseconds=duration_ms), failed
    context.spans.export(added)


def fail() -> None:
    """Mark the running span as failed although no exception leaves it."""
    context = _CURRENT.get()
    if context is not None and context.span is not None:
        context.span.failed = True


def open_spans(service: str) -> Spans | None:
    """Return an exporter if the standard variables of OpenTelemetry name a collector, else None.

    The packages are optional (`gpuaas-sdk[otlp]`), so they are imported here."""
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return None
    module = importlib.import_module("gpuaas_sdk.otlp")
    spans: Spans = module.OtlpSpans(service)
    return spans


@contextlib.contextmanager
def _running(spans: Spans, parent: str, name: str, attributes: Attributes) -> Iterator[None]:
    running = _new(parent, name, attributes, datetime.datetime.now(datetime.UTC))
    own = f"00-{running.trace_id}-{running.span_id}-{running.flags}"
    try:
        with _entered(_Context(own, spans, running)):
            yield
    except BaseException:
        running.failed = True
        raise
    finally:
        running.ended_at = datetime.datetime.now(datetime.UTC)
        spans.export(running)


@contextlib.contextmanager
def _entered(context: _Context) -> Iterator[None]:
    before = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def _new(parent: str, name: str, attributes: Attributes, started_at: datetime.datetime) -> Span:
    _, trace_id, parent_id, flags = parent.split("-")[:4]
    return Span(name, trace_id, random.randbytes(8).hex(), parent_id, flags, dict(attributes), started_at)
