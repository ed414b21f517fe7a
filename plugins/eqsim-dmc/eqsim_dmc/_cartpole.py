from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import forward

from ._models import as_array
from ._task import AbstractEndlessTask, model, physics
from ._tolerance import tolerance
from .sigmoids import quadratic


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

    sys: System = eqx.field(converter=model("cartpole.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)
    swing_up: bool = eqx.field(static=True, default=True)
    sparse: bool = eqx.field(static=True, default=False)
    cart_range: Float[Array, "2"] = eqx.field(converter=as_array, default=(-0.25, 0.25))
    cosine: Float[Array, ""] = eqx.field(converter=as_array, default=0.995)

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


def cartpole_balance(**options: Any) -> Cartpole:
    """Create `Cartpole` whose pole is initially upright. **Arguments:** its other
    options."""
    return Cartpole(swing_up=False, sparse=False, **options)


def cartpole_balance_sparse(**options: Any) -> Cartpole:
    """Create the same with sparse rewards. **Arguments:** the other options of
    `Cartpole`."""
    return Cartpole(swing_up=False, sparse=True, **options)


def cartpole_swingup(**options: Any) -> Cartpole:
    """Create `Cartpole` whose pole initially hangs. **Arguments:** its other
    options."""
    return Cartpole(swing_up=True, sparse=False, **options)


def cartpole_swingup_sparse(**options: Any) -> Cartpole:
    """Create the same with sparse rewards. **Arguments:** the other options of
    `Cartpole`."""
    return Cartpole(swing_up=True, sparse=True, **options)
