"""Poles to balance or to swing up, and balls on springs to bring to rest."""

import math
import xml.etree.ElementTree as ET
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.bridges import check_count
from eqsim.kinematics import forward
from eqsim.randomize import AbstractRandomizer

from ._models import edited_model, number, of_file, of_model, site
from ._sensing import distance
from ._task import (
    AbstractEndlessTask,
    AbstractSuiteTask,
    index,
    physics,
    preset,
    tolerance,
)
from .sigmoids import quadratic


class Pendulum(AbstractEndlessTask):
    """A pole on a weak motor that learns to swing up and balance.

    Observation: `orientation`, cosine and sine of the angle from upright; `velocity`
    (rad/s); 3 entries.

    Reward: 1 while the cosine is at least `cosine`, else 0.

    Initial state: the angle uniform in the circle, at rest.

    **Arguments:**

    - `sys`: the robot; by default the suite's `pendulum.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `cosine`: smallest cosine that counts as upright; by default that of 8 degrees.

    ??? cite "Reference"
        `dm_control.suite.pendulum`.
    """

    sys: System = eqx.field(converter=of_file("pendulum.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)
    cosine: Float[Array, ""] = number(math.cos(math.radians(8.0)))

    def initial(self, key: PRNGKeyArray) -> State:
        ref = self.sys.joints.ref
        q = jr.uniform(key, ref.shape, ref.dtype, -jnp.pi, jnp.pi)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        rot = forward(self.sys, state.q).rot[0]
        orientation = jnp.stack([rot[2, 2], rot[0, 2]])
        return {"orientation": orientation, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        upright = forward(self.sys, state.q).rot[0, 2, 2] >= self.cosine
        return upright.astype(state.q.dtype)


pendulum_swingup = Pendulum


class Acrobot(AbstractEndlessTask):
    """Two poles, driven at the elbow, to be swung up until the tip reaches a target.

    Observation: `orientations`, sines, then cosines of the angles of upper and lower
    arm from upright; `velocity` (rad/s); 6 entries.

    Reward: `tolerance` of the distance from tip to target (m), with bounds 0 and
    `radius`, and margin 1 m, or 0 if sparse.

    Initial state: both angles uniform in the circle, at rest.

    **Arguments:**

    - `sys`: the robot; by default the suite's `acrobot.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `sparse`: true to reward only success.
    - `target`: position of the target in the world, m; `radius`: its radius, m; by
        default those of the file.
    - `tip`: position of the tip in the frame of the lower arm, m; by default that of
        the file.

    ??? cite "Reference"
        Coulom, *Reinforcement learning using neural networks, with applications to motor
        control*, 2002. `dm_control.suite.acrobot`.
    """

    sys: System = eqx.field(converter=of_file("acrobot.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)
    sparse: bool = eqx.field(static=True, default=False)
    target: Float[Array, "3"] = site("acrobot.xml", "target")
    radius: Float[Array, ""] = site("acrobot.xml", "target", size=True)
    tip: Float[Array, "3"] = site("acrobot.xml", "tip")

    def initial(self, key: PRNGKeyArray) -> State:
        ref = self.sys.joints.ref
        q = jr.uniform(key, ref.shape, ref.dtype, -jnp.pi, jnp.pi)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        rot = forward(self.sys, state.q).rot
        orientations = jnp.concatenate([rot[:, 0, 2], rot[:, 2, 2]])
        return {"orientations": orientations, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        arm = index(self.sys.links.names, "lower_arm", "link")
        poses = forward(self.sys, state.q)
        gap = self.target - poses.pos[arm] - poses.rot[arm] @ self.tip
        margin = 0.0 if self.sparse else 1.0
        return tolerance(distance(gap), (0.0, self.radius), margin)


acrobot_swingup = Acrobot
acrobot_swingup_sparse = preset(
    Acrobot, "Create `Acrobot` with sparse rewards.", sparse=True
)


class Cartpole(AbstractEndlessTask):
    r"""A cart on a rail that learns to hold a pole upright.

    Observation: `position`, position of the cart (m), cosine and sine of the angle of
    the pole from upright; `velocity`, of cart (m/s) and hinge (rad/s); 5 entries.

    Reward: with the cosine $c$, `tolerance` $t$ and the position $x$ of the cart,
    $\frac{1 + c}{2} \cdot \frac{1 + t(x)}{2} \cdot \frac{4 + t(u)}{5} \cdot \frac{1 +
    t(\dot q_2)}{2}$ with margins 2 m, 1 (quadratic, 0 at the margin) and 5 rad/s.
    Sparse: 1 while $x$ is in `cart_range` and $c$ is at least `cosine`, else 0.

    Initial state. Balance: coordinates uniform within 0.1 m and 0.034 rad. Swing up:
    normal, 0.01 m, and 0.01 rad about hanging. Velocities normal, 0.01.

    **Arguments:**

    - `sys`: the robot; by default the suite's `cartpole.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `swing_up`: true if the pole hangs initially.
    - `sparse`: true to reward only success.
    - `cart_range`, `cosine`: range of positions, m, and smallest cosine for the sparse
        reward.

    ??? cite "Reference"
        Barto, Sutton, Anderson, *Neuronlike adaptive elements that can solve difficult
        learning control problems*, 1983. `dm_control.suite.cartpole`.
    """

    sys: System = eqx.field(converter=of_file("cartpole.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)
    swing_up: bool = eqx.field(static=True, default=True)
    sparse: bool = eqx.field(static=True, default=False)
    cart_range: Float[Array, "2"] = number((-0.25, 0.25))
    cosine: Float[Array, ""] = number(0.995)

    def initial(self, key: PRNGKeyArray) -> State:
        key_q, key_qd = jr.split(key)
        ref = self.sys.joints.ref
        if self.swing_up:
            scale = jnp.full_like(ref, 0.1).at[:2].set(0.01)
            hanging = jnp.zeros_like(ref).at[1].set(jnp.pi)
            q = hanging + scale * jr.normal(key_q, ref.shape, ref.dtype)
        else:
            half = jnp.full_like(ref, 0.034).at[0].set(0.1)
            q = half * jr.uniform(key_q, ref.shape, ref.dtype, -1.0, 1.0)
        qd = 0.01 * jr.normal(key_qd, (self.sys.nv,), ref.dtype)
        return self.pipeline.init(self.sys, q, qd)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        rot = forward(self.sys, state.q).rot[1:]
        turned = jnp.stack([rot[:, 2, 2], rot[:, 0, 2]], axis=1)
        position = jnp.concatenate([state.q[:1], turned.ravel()])
        return {"position": position, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        place = state.q[0]
        cosine = forward(self.sys, state.q).rot[1:, 2, 2]
        if self.sparse:
            low, high = self.cart_range
            # Without an upper bound, because that of an upright pole may exceed one by
            # rounding.
            upright = jnp.all(cosine >= self.cosine).astype(place.dtype)
            return tolerance(place, (low, high)) * upright
        upright = jnp.mean(1.0 + cosine) / 2.0
        centered = (1.0 + tolerance(place, margin=2.0)) / 2.0
        slow = (1.0 + jnp.min(tolerance(state.qd[1:], margin=5.0))) / 2.0
        idle = tolerance(action[0], margin=1.0, sigmoid=quadratic, value_at_margin=0.0)
        return upright * centered * (4.0 + idle) / 5.0 * slow


_UPRIGHT = "Create `Cartpole` whose pole is initially upright"
cartpole_balance = preset(Cartpole, f"{_UPRIGHT}.", swing_up=False)
cartpole_balance_sparse = preset(
    Cartpole, f"{_UPRIGHT}, with sparse rewards.", swing_up=False, sparse=True
)
cartpole_swingup = Cartpole
cartpole_swingup_sparse = preset(
    Cartpole, "Create `Cartpole` with sparse rewards.", sparse=True
)


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

    sys: System = eqx.field(converter=of_model(lqr_model), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)
    control_cost: Float[Array, ""] = number(0.1)

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
