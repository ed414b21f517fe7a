import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ._fields import as_array
from ._sensor_kinds import (
    ContactData,
    ContactReduction,
    RayData,
    SENSOR_FACTS,
    SensorKind,
    SensorObject,
)


Attachment = tuple[SensorObject, int]


class Sensors(eqx.Module):
    r"""Sensors as in MuJoCo: functions of the state and of the solved forces.

    **Arguments:**

    - `names`, `kinds`: one entry per sensor.
    - `objects`, `references`: object that each sensor is attached to, and reference
        frame of the measurement, as kind and index; for links, index -1 is the world.
        `SensorObject.NONE` if there is none.
    - `limited`: true if `cutoff` is enforced.
    - `contact_data`, `contact_reductions`, `contact_slots`: for contact sensors, the
        data of a contact, the selection of contacts, and their number.
    - `ray_data`: for rangefinders, the data of the ray.
    - `ray_geoms`: shapes that rays can hit.
    - `cutoff`: bound of the values. For distances, the largest distance that is
        searched for.
    - `magnetic`: magnetic flux in the world. None: there is no magnetometer.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    kinds: tuple[SensorKind, ...] = eqx.field(static=True)
    objects: tuple[Attachment, ...] = eqx.field(static=True)
    references: tuple[Attachment, ...] = eqx.field(static=True)
    limited: tuple[bool, ...] = eqx.field(static=True)
    contact_data: tuple[tuple[ContactData, ...], ...] = eqx.field(static=True)
    contact_reductions: tuple[ContactReduction, ...] = eqx.field(static=True)
    contact_slots: tuple[int, ...] = eqx.field(static=True)
    ray_data: tuple[tuple[RayData, ...], ...] = eqx.field(static=True)
    ray_geoms: tuple[int, ...] = eqx.field(static=True)
    cutoff: Float[Array, " nsensor"] = eqx.field(converter=as_array)
    magnetic: Float[Array, "3"] | None = eqx.field(converter=as_array, default=None)

    @staticmethod
    def none() -> "Sensors":
        """Return no sensors."""
        return Sensors(*((),) * 10, cutoff=np.zeros(0))

    def sizes(self, num_outputs: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of values of each sensor.

        **Arguments:**

        - `num_outputs`: number of forces of each actuator, `Actuators.num_outputs`.
        """
        return tuple(self._size(k, num_outputs) for k in range(len(self.names)))

    def _size(self, index: int, num_outputs: tuple[int, ...]) -> int:
        kind, (_, target) = self.kinds[index], self.objects[index]
        if SENSOR_FACTS[kind].size:
            return SENSOR_FACTS[kind].size
        if kind is SensorKind.CONTACT:
            per_slot = sum(data.size for data in self.contact_data[index])
            return per_slot * self.contact_slots[index]
        if kind is SensorKind.RANGEFINDER:
            return sum(data.size for data in self.ray_data[index])
        return num_outputs[target]
