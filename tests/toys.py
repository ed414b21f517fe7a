"""Environments that compile at once, and whose course is known: masses on rails, a sled."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import eqsim
from eqsim import AbstractPipeline, AbstractTask, load_mjcf, State, System
from eqsim.io import with_height_field
from eqsim.terrain import with_terrain


def rails(n: int = 2, limited: bool = True, motors: int | None = None) -> System:
    """`n` sliders side by side; all or some have motors, all or the first of which go
    from -2 to 3."""
    bodies = "".join(
        f'<body name="mass{k}" pos="0 {k} 0"><joint name="rail{k}" type="slide" axis="1 0 0"'
        f' damping="0.1"/><geom size="0.1" mass="{k + 1}" contype="0" conaffinity="0"/>'
        "</body>"
        for k in range(n)
    )
    drives = "".join(
        f'<motor name="motor{k}" joint="rail{k}" ctrlrange="-2 3" '
        f'ctrllimited="{str(limited or k == 0).lower()}"/>'
        for k in range(n if motors is None else motors)
    )
    return eqsim.load_mjcf(
        f'<mujoco><option gravity="0 0 0" timestep="0.1"/><worldbody>{bodies}</worldbody>'
        f"<actuator>{drives}</actuator></mujoco>"
    )


class Rails(AbstractPipeline):
    """Semi-implicit Euler of `m x'' = gear u - d x' - k (x - mean)`: masses that a
    spring `k` pulls together."""

    spring: float = 0.0

    def init(self, sys, q=None, qd=None) -> State:
        zero = jnp.zeros(sys.nv, sys.dt.dtype)
        return State(zero if q is None else q, zero if qd is None else qd, zero[:0])

    def solve(self, sys, state, ctrl, external=None):
        raise AssertionError("nothing touches on rails")

    def advance(self, sys, state, ctrl, external=None):
        return self.step(sys, state, ctrl), self.solve(sys, state, ctrl)

    def step(self, sys, state, ctrl, external=None) -> State:
        driven = jnp.asarray(sys.actuators.joints)
        push = jnp.zeros_like(state.q).at[driven].set(sys.actuators.gear[:, 0] * ctrl)
        pull = self.spring * (jnp.mean(state.q)[None] - state.q)
        force = push + pull - sys.joints.damping * state.qd
        qd = state.qd + sys.dt * force / sys.links.mass
        return State(state.q + sys.dt * qd, qd, state.act)


class Rail(AbstractTask):
    """Masses that are to stay near 0, and fall off beyond `edge`."""

    sys: System
    pipeline: AbstractPipeline
    frame_skip: int = eqx.field(static=True)
    edge: float = eqx.field(static=True)
    noise: float = eqx.field(static=True)

    def __init__(self, n=2, edge=5.0, noise=0.1, frame_skip=1, motors=None, spring=0.0):
        self.sys, self.pipeline = rails(n, motors=motors), Rails(spring)
        self.edge, self.noise, self.frame_skip = edge, noise, frame_skip

    def initial(self, key) -> State:
        q = self.noise * jr.normal(key, (self.sys.nq,), self.sys.dt.dtype)
        return self.pipeline.init(self.sys, q)

    def observe(self, state, action):
        return jnp.concatenate([state.q, state.qd])

    def rewards(self, state, action, new):
        return {"place": -jnp.sum(new.q**2), "ctrl": -0.1 * jnp.sum(action**2)}

    def terminated(self, state):
        return ~(jnp.max(jnp.abs(state.q)) <= self.edge)


class Tracked(Rail):
    """The target of the first mass is a velocity: its place, another one at each step."""

    def tracking(self, state):
        return {"v, m/s": (state.q[0], state.qd[0]), "x, m": (state.q[1], state.q[1])}


def push(obs, key):
    """A policy: random forces, one per mass."""
    n = obs.shape[-1] // 2
    return jr.uniform(key, (n,), obs.dtype, -1.0, 2.0)


def steps(env, state, actions):
    """Steps one by one; what was reported, as a list."""
    out = []
    for action in np.asarray(actions):
        state, timestep = env.step(state, jnp.asarray(action))
        out.append(timestep)
    return state, out


SLED = """
<mujoco><option gravity="0 0 0" timestep="0.05"/><worldbody>
  <geom name="floor" type="plane" size="0 0 1" {place} contype="0" conaffinity="0"/>
  <body name="sled"><joint name="j" type="free"/>
    <geom size=".1" mass="1" contype="0" conaffinity="0"/>
  </body></worldbody><actuator><motor joint="j" gear="1 0 0 0 0 0"/></actuator></mujoco>
"""


class Sled(AbstractTask):
    """A body without gravity, pushed along x."""

    sys: eqsim.System
    pipeline: eqsim.AbstractPipeline = eqsim.Generalized()
    frame_skip: int = eqx.field(static=True, default=1)

    def initial(self, key):
        dtype = self.sys.dt.dtype
        q = jnp.array([0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0], dtype)
        q = q.at[:2].add(0.01 * jr.normal(key, (2,), dtype))
        return self.pipeline.init(self.sys, q)

    def observe(self, state, action):
        return state.q

    def rewards(self, state, action, new):
        return {"x": new.q[0]}

    def terminated(self, state):
        return jnp.zeros((), bool)


def sled(grid, place=""):
    """A `Sled` above the terrain of `grid`."""
    spec = with_height_field(SLED.format(place=place), *grid.shape, (10.0, 10.0))
    return Sled(with_terrain(load_mjcf(spec), grid.heights(jr.key(0)), grid.size))
