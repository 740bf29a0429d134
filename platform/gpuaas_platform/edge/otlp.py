"""Send spans to an OpenTelemetry collector over HTTP. `telemetry` loads this only if an endpoint is configured."""

import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from gpuaas_platform.edge.telemetry import RequestLine, Trace

_ATTRIBUTES = ("code", "correlation_id", "org_id", "project_id", "actor")


class OtlpSpans:
    """Exports one complete span when a request has ended. A thread of the exporter sends spans in batches."""

    def __init__(self, endpoint: str) -> None:
        self._resource = Resource.create({"service.name": "gpuaas-platform"})
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces"))

    def export(self, line: RequestLine, trace: Trace) -> None:
        flags = TraceFlags(int(trace.flags, 16))
        parent = _context(trace.trace_id, trace.parent_id, flags, is_remote=True) if trace.parent_id else None
        ended_ns, failed = time.time_ns(), line.status >= 500
        self._processor.on_end(
            ReadableSpan(
                name=line.route,
                context=_context(trace.trace_id, trace.span_id, flags, is_remote=False),
                parent=parent,
                resource=self._resource,
                kind=SpanKind.SERVER,
                attributes={
                    "http.request.method": line.method,
                    "http.response.status_code": line.status,
                    **{f"gpuaas.{name}": getattr(line, name) for name in _ATTRIBUTES},
                },
                status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
                start_time=ended_ns - int(line.ms * 1e6),
                end_time=ended_ns,
            )
        )

    def close(self) -> None:
        self._processor.shutdown()  # type: ignore[no-untyped-call]


def _context(trace_id: str, span_id: str, flags: TraceFlags, *, is_remote: bool) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=is_remote, trace_flags=flags)
