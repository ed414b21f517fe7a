"""Shared data of the checks of one pipeline: small robots, programs and
trajectories."""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._loops import scan
from ..io import load_mjcf
from ..model import State, System
from ..pipelines import AbstractPipeline, contact_wrenches, Generalized, Solved
from ._check import NotApplicable
from ._gradients import Function
from ._tools import counted_jit, double_precision, in_precision


STEPS = 128
"""Number of steps of a simulation."""

BOX = """
<mujoco model="box">
  <option timestep="0.005"/>
  <worldbody>
    <body name="box"><freejoint/><geom type="box" size=".1 .2 .3" mass="2"/></body>
  </worldbody>
</mujoco>"""
PENDULUM = """
<mujoco model="pendulum">
  <option timestep="0.005"/>
  <default><geom type="capsule" size=".03" contype="0" conaffinity="0"/></default>
  <worldbody>
    <body name="upper"><joint axis="0 1 0"/><geom fromto="0 0 0 .5 0 0" mass="1"/>
      <body name="lower" pos=".5 0 0"><joint axis="0 1 0"/>
        <geom fromto="0 0 0 .4 0 0" mass=".5"/></body>
    </body>
  </worldbody>
</mujoco>"""
# The rod hangs from the center of a ball, and touches nothing.
BALL = """
<mujoco model="ball">
  <option timestep="0.005"/>
  <worldbody>
    <geom name="ground" type="plane" size="1 1 1" friction=".4"/>
    <body name="ball" pos="0 0 .1"><freejoint/>
      <geom name="ball" type="sphere" size=".1" mass="2" friction=".4"/>
      <body name="rod"><joint name="hinge" axis="0 1 0" damping=".05"/>
        <geom type="capsule" fromto="0 0 0 .05 .02 -.3" size=".02" mass=".3"
          contype="0" conaffinity="0"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="hinge" gear="2"/></actuator>
</mujoco>"""


@counted_jit
def init_state(pipeline, sys, q, qd):
    """Create a state, compiled; pipelines of the same structure share the program."""
    return pipeline.init(sys, q, qd)


@counted_jit
def next_state(pipeline, sys, state, ctrl):
    """Take a step, compiled."""
    return pipeline.step(sys, state, ctrl)


@eqx.filter_jit
def _solved(pipeline, sys, state, ctrl):
    solved = pipeline.solve(sys, state, ctrl)
    return solved, contact_wrenches(sys, state.q, solved.contacts)


@eqx.filter_jit
def _advanced(pipeline, sys, state, ctrl):
    return pipeline.advance(sys, state, ctrl)


def _ball_step(q, qd, ctrl, sys, pipeline):
    new = pipeline.step(sys, pipeline.init(sys, q, qd), ctrl)
    return new.q, new.qd


class PipelineKit:
    """A pipeline, and quantities that are computed when a check first needs them; all
    in double precision."""

    def __init__(
        self, pipeline: AbstractPipeline, build: Callable[[], Any] | None = None
    ):
        self.given, self.build = pipeline, build

    @ft.cached_property
    def pipeline(self) -> AbstractPipeline:
        """The pipeline in double precision."""
        return in_precision(self.given, jnp.float64)

    @ft.cached_property
    def box(self) -> System:
        """A floating body."""
        return self._accepted(BOX)

    @ft.cached_property
    def pendulum(self) -> System:
        """Two links on hinges."""
        return self._accepted(PENDULUM)

    @ft.cached_property
    def ball(self) -> System:
        """A ball on the ground with an actuated rod."""
        return self._accepted(BALL)

    def _accepted(self, text: str) -> System:
        sys = in_precision(load_mjcf(text), jnp.float64)
        try:
            eqx.filter_eval_shape(self.pipeline.init, sys)
        except ValueError as error:
            raise NotApplicable(f"the pipeline rejects this robot: {error}") from error
        return sys

    def simulate(self, sys: System, state: State) -> State:
        """Return the states of `STEPS` steps with zero controls, stacked, without the
        first."""
        return _simulate(self.pipeline, sys, state)

    def reference(self, sys: System, q: Array, qd: Array) -> State:
        """Return the same for `Generalized`."""
        exact = Generalized()
        return _simulate(exact, sys, exact.init(sys, q, qd))

    def start(self, sys: System, q: Any = None, qd: Any = None) -> State:
        """Create a state at given values; by default at the reference, at rest."""
        q = sys.joints.ref if q is None else jnp.asarray(q, float)
        qd = jnp.zeros(sys.nv) if qd is None else jnp.asarray(qd, float)
        return init_state(self.pipeline, sys, q, qd)

    @ft.cached_property
    def settled(self) -> State:
        """The states of a ball that falls to the ground and comes to rest."""
        q = self.ball.joints.ref.at[2].add(0.01)
        return self.simulate(self.ball, self.start(self.ball, q))

    @ft.cached_property
    def places(self) -> dict[str, tuple[Array, Array, Array]]:
        """Coordinates, velocities and controls of the ball: in the air at the reference,
        in the air, sliding on the ground, and resting on it."""
        ref, rng = self.ball.joints.ref, np.random.default_rng(0)
        quat = np.array([0.9, 0.1, -0.3, 0.3])
        turned = ref.at[3:7].set(jnp.asarray(quat / np.linalg.norm(quat)))
        turned = turned.at[7].set(0.4)
        moving = jnp.asarray(0.5 * rng.normal(size=self.ball.nv))
        sliding = jnp.asarray([2.0, 0.8, -0.1, 0.3, 0.5, -0.2, 0.6])
        none, some = jnp.zeros(1), jnp.asarray([0.7])
        last = jax.tree.map(lambda x: x[-1], self.settled)
        return {
            "at the reference": (ref.at[2].set(0.5), jnp.zeros(self.ball.nv), some),
            "in the air": (turned.at[2].set(0.5), moving, some),
            "sliding": (turned.at[2].set(0.0999), sliding, some),
            "resting": (last.q, last.qd, none),
        }

    @ft.cached_property
    def solved(self) -> dict[str, tuple[Solved, Array]]:
        """Results of `solve` at each place, and the contact forces on the links."""
        return self._at_places(_solved)

    @ft.cached_property
    def advanced(self) -> dict[str, tuple[State, Solved]]:
        """Results of `advance` at each place."""
        return self._at_places(_advanced)

    def _at_places(self, fn: Callable[..., Any]) -> dict[str, Any]:
        out = {}
        for name, (q, qd, ctrl) in self.places.items():
            state = self.start(self.ball, q, qd)
            out[name] = fn(self.pipeline, self.ball, state, ctrl)
        return out

    @ft.cached_property
    def derivatives(self) -> dict[str, Function]:
        """A step of the ball as a function of coordinates, velocities, control and the
        robot, with derivatives, at each place."""
        places, rest = dict(self.places), (self.ball, self.pipeline)
        function = Function.of(_ball_step, *places["in the air"], *rest)
        return {name: function.at(*place, *rest) for name, place in places.items()}


def with_dt(sys: System, share: float) -> System:
    """Return the robot with a scaled time step."""
    return eqx.tree_at(lambda s: s.dt, sys, sys.dt * share)


def without_gravity(sys: System) -> System:
    """Return the robot without gravity."""
    return eqx.tree_at(lambda s: s.gravity, sys, jnp.zeros_like(sys.gravity))


def double(law: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a law that is checked in double precision."""

    @ft.wraps(law)
    def checked(kit: Any) -> None:
        with double_precision():
            law(kit)

    return checked


@eqx.filter_jit
def _simulate(pipeline: AbstractPipeline, sys: System, state: State) -> State:
    ctrl = jnp.zeros(sys.nu, state.q.dtype)

    def step(state, _):
        new = pipeline.step(sys, state, ctrl)
        return new, new

    return scan(step, state, length=STEPS)[1]


def norm(x: Any) -> float:
    """Compute the norm of all entries."""
    return float(np.linalg.norm(np.asarray(x)))
