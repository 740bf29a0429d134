"""Send spans of a controller to an OpenTelemetry collector over HTTP. `traces` loads this only if one is configured.

The exporter reads the address and other settings from the standard variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`
and `OTEL_EXPORTER_OTLP_HEADERS`. Needs the extra `gpuaas-sdk[otlp]`."""

import datetime

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from gpuaas_sdk.traces import Span

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class OtlpSpans:
    """Exports spans that have ended. A thread of the exporter sends them in batches."""

    def __init__(self, service: str) -> None:
        self._resource = Resource.create({"service.name": service})
        self._processor = BatchSpanProcessor(OTLPSpanExporter())

    def export(self, span: Span) -> None:
        """Queue one span; this does not block."""
        flags = TraceFlags(int(span.flags, 16))
        trace_id = int(span.trace_id, 16)
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=SpanContext(trace_id, int(span.span_id, 16), is_remote=False, trace_flags=flags),
                parent=SpanContext(trace_id, int(span.parent_id, 16), is_remote=True, trace_flags=flags),
                resource=self._resource,
                kind=SpanKind.INTERNAL,
                attributes=span.attributes,
                status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
                start_time=_nanoseconds(span.started_at),
                end_time=_nanoseconds(span.ended_at or span.started_at),
            )
        )

    def close(self) -> None:
        """Send the spans that are queued and end the thread."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]


def _nanoseconds(moment: datetime.datetime) -> int:
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1) * 1000
