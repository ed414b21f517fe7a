import equinox as eqx
from jaxtyping import Array, Float

from ._fields import as_array


class Keyframe(eqx.Module):
    """A named state of a robot and the corresponding controls.

    **Arguments:**

    - `q`, `qd`, `act`: coordinates, velocities and activations, as in `State`.
    - `ctrl`: input of the actuators.
    """

    q: Float[Array, "*batch nq"]
    qd: Float[Array, "*batch nv"]
    act: Float[Array, "*batch na"]
    ctrl: Float[Array, "*batch nu"]


class Keyframes(eqx.Module):
    """Named states of a robot (MJCF: `key`), without influence on its motion.

    **Arguments:**

    - `names`: one entry per keyframe.
    - `q`, `qd`, `act`: coordinates, velocities and activations, as in `State`.
    - `ctrl`: input of the actuators.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    q: Float[Array, "nkey nq"] = eqx.field(converter=as_array)
    qd: Float[Array, "nkey nv"] = eqx.field(converter=as_array)
    act: Float[Array, "nkey na"] = eqx.field(converter=as_array)
    ctrl: Float[Array, "nkey nu"] = eqx.field(converter=as_array)
