"""What the health handler measures, as text for Prometheus. `metrics` serves it; `reconciliation` fills it.

Values of an instance are shown while this process looks after it: with two replicas, one of them has each instance."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

OBSERVED_AT = "gpuaas_app_observed_timestamp_seconds"
_OBSERVED_HELP = "When the app looked at the instance last."


class Gauge(NamedTuple):
    """One measured value.

    Gauge("demo_jobs", "Jobs by state.", 3, {"state": "running"})"""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = {}


class Gauges:
    """The values of every instance that this process looks after."""

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
        by_name: dict[str, list[Gauge]] = {}
        for gauge in (each for values in self._by_instance.values() for each in values):
            by_name.setdefault(gauge.name, []).append(gauge)
        return "".join(_family(name, by_name[name]) for name in sorted(by_name))


def _family(name: str, gauges: list[Gauge]) -> str:
    lines = [f"# HELP {name} {gauges[0].help}", f"# TYPE {name} gauge", *map(_line, gauges)]
    return "".join(f"{line}\n" for line in lines)


def _line(gauge: Gauge) -> str:
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in gauge.labels.items())
    return f"{gauge.name}{{{labels}}} {gauge.value!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
