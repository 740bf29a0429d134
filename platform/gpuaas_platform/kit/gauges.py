"""Values that a part of the process provides for `/metrics`. `edge.telemetry` reads them on each request for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Gauge:
    name: str
    text: str
    read: Callable[[], float]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Gauges with the same name have the same labels. A label has few values, never an id."""
