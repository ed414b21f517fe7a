"""Results of the comparison of one robot, in a form that JSON can store."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from _agreement import Errors, Rows
from _reference import Summary


@dataclasses.dataclass(frozen=True)
class Deviation:
    """A state in which one quantity differs by more than the tolerance.

    - `quantity`: `qdd`, `step`, or the kind of a sensor.
    """

    robot: str
    state: int
    kind: str
    quantity: str
    error: float
    cause: str

    def __str__(self):
        return (
            f"{self.robot}, state {self.state} ({self.kind}), {self.quantity}: error "
            f"{self.error:.1e}. {self.cause}"
        )


@dataclasses.dataclass(frozen=True)
class Record:
    """The errors of one robot in each of its states.

    - `robot`: seed of a random robot, or name of a file.
    - `group`: the feature that was drawn alone (or empty), or the folder of the file.
    - `sensors`: kind and errors of each sensor.
    """

    robot: str
    group: str
    links: int
    features: list[str]
    qdd: list[float]
    step: list[float]
    sensors: list[tuple[str, list[float]]]
    rows: list[int]
    contacts: list[int]
    residual: list[float]
    deviations: list[Deviation]

    @staticmethod
    def of(
        robot: str,
        group: str,
        sys: Any,
        features: Iterable[str],
        error: Errors,
        rows: Rows,
        deviations: list[Deviation],
    ) -> "Record":
        kinds = dict(zip(sys.sensors.names, sys.sensors.kinds))
        sensors = [(kinds[k].value, e.tolist()) for k, e in error.sensors.items()]
        return Record(
            robot,
            group,
            sys.nlink,
            list(features),
            error.qdd.tolist(),
            error.step.tolist(),
            sensors,
            *(values.tolist() for values in rows),
            deviations,
        )

    @staticmethod
    def read(data: dict[str, Any]) -> "Record":
        """Create a record from JSON data."""
        deviations = [Deviation(**line) for line in data["deviations"]]
        fields: Any = data | {"deviations": deviations}
        return Record(**fields)


def columns(records: list[Record], tolerance: float) -> dict[str, Any]:
    """Return the table columns that summarize errors."""
    join = lambda lists: np.array([x for row in lists for x in row], float)
    qdd = Summary.of(join(r.qdd for r in records), tolerance)
    step = Summary.of(join(r.step for r in records), tolerance)
    sensed = Summary.of(
        join(errors for r in records for _, errors in r.sensors), tolerance
    )
    return {
        "states": sum(len(r.qdd) for r in records),
        "qdd max": qdd.max,
        "qdd median": qdd.median,
        "qdd within": qdd.within,
        "step max": step.max,
        "step within": step.within,
        "sensors": sum(len(r.sensors) for r in records),
        "sensors max": sensed.max if sensed.count else None,
        "sensors within": sensed.within if sensed.count else None,
    }
