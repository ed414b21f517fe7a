import equinox as eqx
from jaxtyping import Array, Float

from ._fields import as_array
from ._kinds import Activation


class Actuators(eqx.Module):
    r"""What turns `ctrl` into joint forces.

    With input $u$ (the control, or the activation when there is one), joint position
    $\ell = \mathrm{gear}\, q$ and velocity $\dot\ell$,

    $f = (g_0 + g_1 \ell + g_2 \dot\ell)\, u + b_0 + b_1 \ell + b_2 \dot\ell,
    \qquad \tau = \mathrm{gear}\, f$

    A motor has $g_0 = 1$; a position servo $g_0 = k_p, b_1 = -k_p, b_2 = -k_v$; a
    velocity servo $g_0 = k_v, b_2 = -k_v$.

    **Arguments:**

    - `names`, `joints`, `activation`: one entry per actuator.
    - `in_parent`: whether the gear of a ball or free joint is given in the parent's
        axes.
    - `ctrl_limited`, `force_limited`, `act_limited`: which ranges are enforced.
    - `act_early`: whether the force reads the activation at the end of the step.
    - `gear`: one number for hinge and slide, three for ball, six for free joints.
    - `gain`, `bias`: $g$ and $b$.
    - `time_constant`: of the activation filter, s.
    - `ctrl_range`, `force_range`, `act_range`: lower and upper limit.

    The activations stand in `State.act`, one per actuator that has dynamics.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    joints: tuple[int, ...] = eqx.field(static=True)
    in_parent: tuple[bool, ...] = eqx.field(static=True)
    activation: tuple[Activation, ...] = eqx.field(static=True)
    ctrl_limited: tuple[bool, ...] = eqx.field(static=True)
    force_limited: tuple[bool, ...] = eqx.field(static=True)
    act_limited: tuple[bool, ...] = eqx.field(static=True)
    act_early: tuple[bool, ...] = eqx.field(static=True)
    gear: Float[Array, "nu 6"] = eqx.field(converter=as_array)
    gain: Float[Array, "nu 3"] = eqx.field(converter=as_array)
    bias: Float[Array, "nu 3"] = eqx.field(converter=as_array)
    time_constant: Float[Array, " nu"] = eqx.field(converter=as_array)
    ctrl_range: Float[Array, "nu 2"] = eqx.field(converter=as_array)
    force_range: Float[Array, "nu 2"] = eqx.field(converter=as_array)
    act_range: Float[Array, "nu 2"] = eqx.field(converter=as_array)

    @property
    def with_activation(self) -> tuple[int, ...]:
        """The actuators that own an entry of `State.act`, in order."""
        none = Activation.NONE
        return tuple(i for i, a in enumerate(self.activation) if a is not none)
