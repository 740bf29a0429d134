"""What the health handler measures, as text for Prometheus. `metrics` serves it; `reconciliation` fills it.

Values of an instance are shown while this process looks after it: with two replicas, one of them has each instance."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import prometheus_client
from prometheus_client import Metric
from prometheus_client.registry import Collector

OBSERVED_AT = "gpuaas_app_observed_timestamp_seconds"
_OBSERVED_HELP = "When the app looked at the instance last."


class Gauge(NamedTuple):
    """One measured value.

    Gauge("demo_jobs", "Jobs by state.", 3, {"state": "running"})"""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = {}


class Gauges(Collector):
    """The values of every instance that this process looks after.

    gauges = Gauges()
    gauges.set(instance_id, "demo", [Gauge("demo_jobs", "Jobs by state.", 3, {"state": "running"})])"""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._by_instance: dict[str, tuple[Gauge, ...]] = {}

    def set(self, instance_id: str, instance: str, values: Iterable[Gauge]) -> None:
        """Replace the values of an instance."""
        own = {"instance_id": instance_id, "instance_name": instance}
        observed = Gauge(OBSERVED_AT, _OBSERVED_HELP, round(self._clock(), 3))
        self._by_instance[instance_id] = tuple(
            each._replace(labels={**own, **each.labels}) for each in (observed, *values)
        )

    def drop(self, instance_id: str) -> None:
        """Forget the values of an instance that this process does not look after any more."""
        self._by_instance.pop(instance_id, None)

    def text(self) -> str:
        """Return all values in the text format of Prometheus."""
        return prometheus_client.generate_latest(self).decode()

    def collect(self) -> Iterator[Metric]:
        """Yield the values by their name, for the library that writes the text."""
        by_name: dict[str, Metric] = {}
        for gauge in (each for values in self._by_instance.values() for each in values):
            family = by_name.setdefault(gauge.name, Metric(gauge.name, gauge.help, "gauge"))
            family.add_sample(gauge.name, dict(gauge.labels), gauge.value)
        yield from (by_name[name] for name in sorted(by_name))
