import xml.etree.ElementTree as ET
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.bridges import check_count
from eqsim.randomize import AbstractRandomizer

from ._models import as_array, edited_model
from ._task import AbstractSuiteTask, physics


SOFTEST, STIFFEST = 15.0, 25.0


def lqr_model(num_links: int = 2, num_motors: int = 1, seed: int = 0) -> System:
    """Return the system of `lqr.xml` with a chain of balls on slides, each with a
    spring.

    Slides move along y relative to the previous link. The springs between the balls in
    images of dm_control exert no force and are left out.

    **Arguments:**

    - `num_links`: number of balls.
    - `num_motors`: number of balls with a motor, starting with the first.
    - `seed`: seed of the stiffnesses, uniform from 15 N/m to 25 N/m: those of
        `suite.load(..., task_kwargs={"random": seed})`.
    """
    check_count("num_links", num_links)
    check_count("num_motors", num_motors)
    if num_motors > num_links:
        raise ValueError(
            f"`num_motors` must be from 1 to `num_links` ({num_links}), got {num_motors}."
        )
    # The suite draws stiffness and damping alternately; damping is zero.
    drawn = np.random.RandomState(seed).uniform(size=(num_links, 2))[:, 0]
    stiffness = SOFTEST + (STIFFEST - SOFTEST) * drawn
    arguments = tuple(stiffness.tolist()), num_motors
    return edited_model(_add_chain, "lqr.xml", *arguments)


def _add_chain(root: ET.Element, stiffness: tuple[float, ...], num_motors: int) -> None:
    parent, motors = root.find("worldbody"), ET.SubElement(root, "actuator")
    assert parent is not None, "model files have a worldbody"
    for k, value in enumerate(stiffness):
        pos = "0.25 0 0.1" if k == 0 else "0.25 0 0"
        parent = ET.SubElement(parent, "body", name=f"body_{k}", pos=pos)
        ET.SubElement(parent, "joint", name=f"joint_{k}", stiffness=repr(value))
        ET.SubElement(parent, "geom", name=f"geom_{k}")
        if k < num_motors:
            ET.SubElement(motors, "motor", name=f"motor_{k}", joint=f"joint_{k}")


def _model(sys: System | None) -> System:
    return lqr_model() if sys is None else sys


class Lqr(AbstractSuiteTask):
    r"""A chain of balls on springs, to be brought to rest: a linear-quadratic
    regulator.

    Observation: `position` (m), `velocity` (m/s); 2 entries for each ball.

    Reward: $1 - (|q|^2 + \rho |u|^2) / 2$ of the positions $q$ and the unbounded action
    $u$.

    Episodes terminate when the norm of positions and velocities is below $10^{-6}$. The
    suite does not truncate them.

    Initial state: the positions uniform on the sphere of radius $\sqrt{2}$, at rest.

    The stiffnesses of the springs, `sys.joints.stiffness`, are the same in every
    episode. To draw them at each reset, use `eqsim.DomainRandomization(env,
    RandomSprings())`.

    **Arguments:**

    - `sys`: the robot; by default that of `lqr_model()`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `control_cost`: weight $\rho$ of the control cost.

    ??? cite "Reference"
        `dm_control.suite.lqr`.
    """

    sys: System = eqx.field(converter=_model, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)
    control_cost: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)

    def initial(self, key: PRNGKeyArray) -> State:
        place = jr.normal(key, (self.sys.nq,), self.sys.joints.ref.dtype)
        place = place * (2.0**0.5 / jnp.linalg.norm(place))
        return self.pipeline.init(self.sys, place)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        return {"position": state.q, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        control = self.control_cost * jnp.sum(action**2)
        return 1.0 - 0.5 * (jnp.sum(state.q**2) + control)

    def terminated(self, state: State) -> Bool[Array, ""]:
        """Test if positions and velocities are nearly zero."""
        return jnp.sum(state.q**2) + jnp.sum(state.qd**2) < 1e-12


class RandomSprings(AbstractRandomizer):
    """Randomization of the stiffness of every joint, uniform from 15 N/m to 25 N/m."""

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        old = sys.joints.stiffness
        new = jr.uniform(key, old.shape, old.dtype, SOFTEST, STIFFEST)
        return eqx.tree_at(lambda s: s.joints.stiffness, sys, new)


def lqr_lqr_2_1(seed: int | None = None, **options: Any) -> Lqr:
    """Create `Lqr` with two balls, the first of which has a motor.

    **Arguments:** its options; `seed` as for `lqr_model`, by default 0.
    """
    return _lqr(2, 1, seed, options)


def lqr_lqr_6_2(seed: int | None = None, **options: Any) -> Lqr:
    """Create `Lqr` with six balls, the first two of which have motors.

    **Arguments:** its options; `seed` as for `lqr_model`, by default 0.
    """
    return _lqr(6, 2, seed, options)


def _lqr(
    num_links: int, num_motors: int, seed: int | None, options: dict[str, Any]
) -> Lqr:
    if options.get("sys") is None:
        options["sys"] = lqr_model(num_links, num_motors, seed or 0)
    elif seed is not None:
        raise ValueError(
            f"Only one of `seed` and `sys` may set the springs, but `seed` is {seed} "
            "and `sys` has springs. Leave `seed` out, or pass "
            "`sys=eqsim_dmc.lqr_model(...)`."
        )
    return Lqr(**options)
