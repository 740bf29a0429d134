"""Send spans to an OpenTelemetry collector over HTTP. `telemetry` loads this only if an endpoint is configured."""

import datetime

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from gpuaas_platform.kit.traces import Span

_KINDS = {"server": SpanKind.SERVER, "consumer": SpanKind.CONSUMER}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


class OtlpSpans:
    """Exports spans that have ended. A thread of the exporter sends them in batches."""

    def __init__(self, endpoint: str) -> None:
        self._resource = Resource.create({"service.name": "gpuaas-platform"})
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces"))

    def export(self, span: Span) -> None:
        trace, flags = span.trace, TraceFlags(int(span.trace.flags, 16))
        parent = _context(trace.trace_id, trace.parent_id, flags, is_remote=True) if trace.parent_id else None
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=_context(trace.trace_id, trace.span_id, flags, is_remote=False),
                parent=parent,
                resource=self._resource,
                kind=_KINDS[span.kind],
                attributes=span.attributes,
                status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
                start_time=_nanoseconds(span.started_at),
                end_time=_nanoseconds(span.ended_at),
            )
        )

    def close(self) -> None:
        self._processor.shutdown()  # type: ignore[no-untyped-call]


def _nanoseconds(moment: datetime.datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND * 1000


def _context(trace_id: str, span_id: str, flags: TraceFlags, *, is_remote: bool) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=is_remote, trace_flags=flags)
