"""Laws of pipelines, checked with three small robots: a floating box, a double pendulum, and
a ball on the ground with an actuated rod.

First the kit: a pipeline, these robots, and trajectories that are computed when a law first
needs them, all in double precision. Then the laws of programs (compiled, batched, repeated),
of derivatives, and of physics. `LAWS` lists them all. If the pipeline rejects a robot with
`ValueError`, the laws of that robot are not applicable. The docstring of a law is its
requirement, and advice for the case that it fails.
"""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array

from .._loops import scan as compiled_scan
from ..dynamics import kinetic_energy, momentum, potential_energy
from ..io import load_mjcf
from ..kinematics import difference
from ..model import State, System
from ..pipelines import AbstractPipeline, contact_wrenches, Generalized, Solved
from .comparisons import (
    compare,
    counted_jit,
    Function,
    in_precision,
    moved,
    no_trace,
    NotApplicable,
    require,
    require_arrays,
    require_equal,
    require_finite,
    require_precision,
    require_rebuild,
    require_round_trip,
    rounding,
    row_of,
    same_shapes,
)


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


@eqx.filter_jit
def _simulate(pipeline: AbstractPipeline, sys: System, state: State) -> State:
    ctrl = jnp.zeros(sys.nu, state.q.dtype)

    def step(state, _):
        new = pipeline.step(sys, state, ctrl)
        return new, new

    return compiled_scan(step, state, length=STEPS)[1]


def norm(x: Any) -> float:
    """Compute the norm of all entries."""
    return float(np.linalg.norm(np.asarray(x)))


# --- Programs and derivatives ---


def jit(kit: PipelineKit) -> None:
    """`init` and `step` compile, and return finite values.

    Use `jnp.where` or `jax.lax.cond` instead of `if` on values of a state, and do not
    apply NumPy to them.
    """
    state = kit.start(kit.ball)
    require_finite("the state of `init`", state)
    new = next_state(kit.pipeline, kit.ball, state, jnp.ones(kit.ball.nu))
    require_finite("the state of `step`", new)


def structure(kit: PipelineKit) -> None:
    """`step` returns the structure, shapes and types that `init` returns.

    Create everything that `aux` will contain in `init`, and give arrays a `dtype`.
    """
    state, new = _shapes(kit.pipeline, kit.ball)
    require(same_shapes(state, new), f"the state: {same_shapes(state, new)}")


def _shapes(pipeline, sys):
    def step(sys, state, ctrl):
        return pipeline.step(sys, state, ctrl)

    state = eqx.filter_eval_shape(lambda sys: pipeline.init(sys), sys)
    ctrl = jax.ShapeDtypeStruct((sys.nu,), sys.dt.dtype)
    return state, eqx.filter_eval_shape(step, sys, state, ctrl)


def precision(kit: PipelineKit) -> None:
    """Floating-point arrays of the state have the precision of the robot, with and
    without `jax_enable_x64`.

    Create arrays with the `dtype` of `q`, not with a fixed one.
    """

    def shapes(dtype):
        state, new = _shapes(*in_precision((kit.given, kit.ball), dtype))
        return {"init": state, "step": new}

    require_precision(shapes)


def _heavier(sys, scale):
    where = lambda s: s.links.mass
    return eqx.tree_at(where, sys, where(sys) * scale)


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, None, 0, 0, 0, 0))
def _rows(pipeline, sys, scale, q, qd, ctrl):
    sys = _heavier(sys, scale)
    return pipeline.step(sys, pipeline.init(sys, q, qd), ctrl)


def vmap(kit: PipelineKit) -> None:
    """A batch of states and robots gives the same results as one by one.

    Look for code that depends on the size of an array, and for custom rules without a
    batching rule.
    """
    scales = jnp.asarray([1.0, 1.5, 0.7])
    rows = [kit.places[k] for k in ("in the air", "sliding", "resting")]
    q, qd, ctrl = (jnp.stack(x) for x in zip(*rows, strict=True))
    together = _rows(kit.pipeline, kit.ball, scales, q, qd, ctrl)
    for k, scale in enumerate(scales):
        sys = _heavier(kit.ball, scale)
        state = init_state(kit.pipeline, sys, q[k], qd[k])
        alone = next_state(kit.pipeline, sys, state, ctrl[k])
        row = row_of(together, k)
        require_equal(f"row {k} of a batch", row, alone, rounding(alone))


def scan(kit: PipelineKit) -> None:
    """A compiled loop gives the same results as single steps, and stays finite.

    Look for values that grow without bound, and for parts of the state that are not
    arrays.
    """
    require_finite("a ball that falls to the ground: ", kit.settled)
    q = kit.ball.joints.ref.at[2].add(0.01)
    state, none = kit.start(kit.ball, q), jnp.zeros(kit.ball.nu)
    for k in range(3):
        state = next_state(kit.pipeline, kit.ball, state, none)
        row = row_of(kit.settled, k)
        tolerance = 10.0 ** (k + 1) * rounding(state)
        require_equal(f"step {k} of a loop", row, state, tolerance)


def retrace(kit: PipelineKit) -> None:
    """New states, controls and parameters of the robot and the pipeline do not
    recompile.

    Give every number of the pipeline a field with an array converter, or declare it
    static if it never changes.
    """
    require_arrays("pipeline", kit.pipeline)
    sys, pipeline = moved(kit.ball, 1.0009765625), moved(kit.pipeline, 0.9990234375)
    state = kit.start(kit.ball)
    next_state(kit.pipeline, kit.ball, state, jnp.zeros(sys.nu))
    q, qd = 1.01 * sys.joints.ref, jnp.ones(sys.nv)
    with no_trace(init_state, "other coordinates and numbers"):
        state = init_state(pipeline, sys, q, qd)
    with no_trace(next_state, "other states, controls and numbers"):
        for value in (1.0, -1.0):
            state = next_state(pipeline, sys, state, value * jnp.ones(sys.nu))


def serialization(kit: PipelineKit) -> None:
    """Saving and loading pipeline and state does not change them.

    Store only arrays and static fields in the pipeline and in `aux`.
    """
    require_round_trip("the pipeline", kit.pipeline)
    require_round_trip("the state", kit.start(kit.ball))


def rebuild(kit: PipelineKit) -> None:
    """Two pipelines that are built alike share compiled programs.

    Static fields must be equal by value: use module-level functions instead of a new
    `lambda`, and tuples instead of lists.
    """
    require_rebuild(kit.given, kit.build)


def refusals(kit: PipelineKit) -> None:
    """Coordinates, velocities and controls of a wrong shape raise `ValueError`.

    Call `eqsim.model.check_state` at the beginning of `init` and `step`.
    """
    sys, pipeline = kit.ball, kit.pipeline
    state = kit.start(sys)
    long = lambda n: jnp.zeros(n + 1)
    init, step = pipeline.init, pipeline.step
    for what, call in {
        "coordinates of a wrong shape": lambda: init(sys, long(sys.nq)),
        "velocities of a wrong shape": lambda: init(sys, None, long(sys.nv)),
        "a control of a wrong shape": lambda: step(sys, state, long(sys.nu)),
    }.items():
        try:
            eqx.filter_eval_shape(call)
        except ValueError:
            continue
        raise AssertionError(f"{what} are accepted, but must raise a `ValueError`")


def aux(kit: PipelineKit) -> None:
    """The content of `aux` does not affect a step.

    Iterate until the result does not depend on the initial guess.
    """
    last = jtu.tree_map(lambda x: x[-1], kit.settled)
    if not jtu.tree_leaves(last.aux):
        raise NotApplicable("the states hold no `aux`")
    fresh = init_state(kit.pipeline, kit.ball, last.q, last.qd)
    results = []
    for state in (last, fresh):
        ctrl = jnp.full(kit.ball.nu, 0.3)
        new = next_state(kit.pipeline, kit.ball, state, ctrl)
        results.append((new.q, new.qd, new.act))
    one, other = results
    require_equal("a step with the `aux` of `init` instead", other, one, 1e-6)


def grad(kit: PipelineKit) -> None:
    """The gradient of a step is finite, with respect to all arguments.

    Square roots and norms are not differentiable at zero (see `eqsim.spatial`), and
    both branches of a `jnp.where` are differentiated. `while_loop` has no reverse mode.
    """
    for place, function in kit.derivatives.items():
        ones = [jnp.ones_like(x) for x in function.value(function.leaves)]
        slopes = function.pull(function.leaves, ones)
        for name, slope in zip(function.names, slopes, strict=True):
            what = f"{place}, with {ARGUMENTS}, the derivative by {name}: "
            require_finite(what, slope)


ARGUMENTS = "[0] q, [1] qd, [2] ctrl, [3] sys"


def gradients_q(kit: PipelineKit) -> None:
    """Derivatives of a step with respect to coordinates agree: forward mode, reverse
    mode and finite differences, in the air, at rest and in contact.

    Look for `stop_gradient`, and for values read from `aux` that `q` determines.
    """
    _agree(kit, "[0]")


def gradients_qd(kit: PipelineKit) -> None:
    """Derivatives of a step with respect to velocities agree: forward mode, reverse
    mode and finite differences, in the air, at rest and in contact.

    Look for `stop_gradient`, and for values read from `aux` that `qd` determines.
    """
    _agree(kit, "[1]")


def gradients_ctrl(kit: PipelineKit) -> None:
    """Derivatives of a step with respect to controls agree: forward mode, reverse mode
    and finite differences, in the air, at rest and in contact.

    Look for `stop_gradient`, for rounding, and for custom rules.
    """
    _agree(kit, "[2]")


def gradients_sys(kit: PipelineKit) -> None:
    """Derivatives of a step with respect to parameters of the robot agree: forward
    mode, reverse mode and finite differences, in the air, at rest and in contact.

    Look for values that are read outside JAX, for solvers that stop before convergence,
    and for custom rules.
    """
    _agree(kit, "[3]")


def _agree(kit: PipelineKit, prefix: str) -> None:
    for place, function in kit.derivatives.items():
        try:
            compare(function, prefix, kinks=True, rtol=5e-5, atol=5e-6)
        except AssertionError as error:
            raise AssertionError(f"{place}, with {ARGUMENTS}, {error}") from None


MATTERS = {
    "at the reference": ("gravity", "actuators.gear", "dt"),
    "in the air": ("gravity", "actuators.gear", "dt", "links.mass", "joints.damping"),
    "sliding": ("gravity", "links.mass", "geoms.friction", "geoms.size", "dt"),
}


def sensitivity(kit: PipelineKit) -> None:
    """Masses, gravity, gears, damping and friction have nonzero derivatives where they
    affect the motion.

    Reject robots with parameters that would be ignored, or declare this check as an
    expected failure.
    """
    for place, matters in MATTERS.items():
        function = kit.derivatives[place]
        for part in matters:
            i = function.names.index(f"[3].{part}")
            tangents = [jnp.zeros_like(x) for x in function.leaves]
            tangents[i] = function.leaves[i]
            pushed = function.push(function.leaves, tangents)
            size = max(float(np.max(np.abs(x))) for x in pushed)
            require(size > 1e-9, f"{place}, the derivative by `sys.{part}` is zero")


# --- Physics ---


def free_fall(kit: PipelineKit) -> None:
    """A free body falls by g t^2 / 2, up to an error of the order of the time step.

    Apply gravity once per step, to velocities before positions, or integrate both
    exactly.
    """
    sys, start = kit.box, jnp.asarray([1.0, 0.0, 2.0, 0.0, 0.0, 0.0])
    half = STEPS // 2
    coarse = kit.simulate(sys, kit.start(sys, qd=start))
    fine_sys = with_dt(sys, 0.5)
    fine = kit.simulate(fine_sys, kit.start(fine_sys, qd=start))
    time = half * float(sys.dt)
    velocity = np.asarray(start[:3] + time * sys.gravity)
    place = np.asarray(start[:3] * time + 0.5 * time**2 * sys.gravity)
    for name, state, k in (("dt", coarse, half - 1), ("dt / 2", fine, STEPS - 1)):
        gone = norm(state.qd[k, :3] - velocity) / norm(velocity)
        require(
            gone < 1e-6, f"with {name}, velocities are {gone:.1e} off after {time} s"
        )
    first = norm(coarse.q[half - 1, :3] - place)
    second = norm(fine.q[-1, :3] - place)
    most = norm(sys.gravity) * time * float(sys.dt)
    require(
        first <= most and second <= 0.6 * first + 1e-9,
        f"positions are {first:.2e} m off after {time} s, and {second:.2e} m with half the "
        f"time step; at most {most:.1e} m, and half of that, are expected",
    )


def linear_momentum(kit: PipelineKit) -> None:
    """A body without external forces conserves its linear momentum.

    Internal forces of a robot must be pairs of equal and opposite forces.
    """
    first, last = _momenta(kit)
    lost = np.max(np.linalg.norm(last[:, 3:] - first[3:], axis=1)) / norm(first[3:])
    require(lost < 1e-6, f"momentum changes by a fraction of {lost:.1e}")


def angular_momentum(kit: PipelineKit) -> None:
    """A body without external forces conserves its angular momentum, up to an error of
    the order of the time step.

    Check gyroscopic terms, and the frames of angular velocity and inertia.
    """
    first, last = _momenta(kit)
    lost = np.max(np.linalg.norm(last[:, :3] - first[:3], axis=1)) / norm(first[:3])
    require(lost < 0.01, f"momentum changes by a fraction of {lost:.1e}, at most 0.01")


def _momenta(kit: PipelineKit) -> tuple[np.ndarray, np.ndarray]:
    sys, start, path = _spinning(kit, 1.0)
    found = jax.vmap(lambda q, qd: momentum(sys, q, qd))(path.q, path.qd)
    return np.asarray(momentum(sys, start.q, start.qd)), np.asarray(found)


def _spinning(kit: PipelineKit, share: float):
    sys = with_dt(without_gravity(kit.box), share)
    qd = jnp.asarray([0.5, -0.3, 0.2, 0.4, 2.0, -1.0])
    start = kit.start(sys, qd=qd)
    return sys, start, kit.simulate(sys, start)


def _swinging(kit: PipelineKit, share: float):
    sys = with_dt(kit.pendulum, share)
    start = kit.start(sys, jnp.asarray([0.4, 0.5]), jnp.asarray([0.0, 1.0]))
    return sys, start, kit.simulate(sys, start)


def energy(kit: PipelineKit) -> None:
    """A pendulum conserves its energy, up to an error of the order of the time step.

    Check bias forces, and the order in which positions and velocities are integrated.
    """
    sys, start, path = _swinging(kit, 1.0)
    kinetic = lambda q, qd: kinetic_energy(sys, q, qd)
    total = lambda q, qd: kinetic(q, qd) + potential_energy(sys, q)
    moved = np.max(np.asarray(jax.vmap(kinetic)(path.q, path.qd)))
    now = np.asarray(jax.vmap(total)(path.q, path.qd))
    lost = np.max(np.abs(now - float(total(start.q, start.qd)))) / moved
    require(
        lost < 0.05,
        f"in {STEPS} steps energy changes by {lost:.1%} of the largest kinetic energy; at "
        "most 5 % is expected",
    )


def contact(kit: PipelineKit) -> None:
    """A ball that falls to the ground comes to rest, and penetrates by less than a
    twentieth of its radius.

    Check the depth of contacts, and the friction that keeps the ball in place.
    """
    heights, radius = np.asarray(kit.settled.q[:, 2]), float(kit.ball.geoms.size[1, 0])
    depth = (radius - float(np.min(heights))) / radius
    require(depth < 0.05, f"the ball sinks in by {depth:.1%} of its radius")
    end, speed = float(heights[-1]), norm(kit.settled.qd[-1, :3])
    require(
        abs(end - radius) < 0.03 * radius and speed < 0.05,
        f"at the end the height of the ball is {end} m, not {radius} m, and its speed "
        f"is {speed:.2g} m/s",
    )


def forces(kit: PipelineKit) -> None:
    """`contacts` and `constraint_forces` carry the weight of a ball at rest.

    Report the forces that the step applies, averaged over its substeps.
    """
    sys = kit.ball
    solved, wrench = kit.solved["resting"]
    constraint = solved.constraint_force
    weight = -float(sys.gravity[2] * jnp.sum(sys.links.mass))
    found = {
        "contacts": float(jnp.sum(wrench[:, 5])),
        "constraint_forces": float(constraint[2]),
    }
    for name, value in found.items():
        good = abs(value - weight) < 0.02 * weight
        require(good, f"`{name}` carries {value:.4g} N of {weight:.4g} N")


def advance(kit: PipelineKit) -> None:
    """`advance` returns the state of `step` and the solution of `solve`.

    Compute both from the same forces.
    """
    for name, (q, qd, ctrl) in kit.places.items():
        state = kit.start(kit.ball, q, qd)
        new = next_state(kit.pipeline, kit.ball, state, ctrl)
        solved, _ = kit.solved[name]
        found = kit.advanced[name]
        pairs = {"q": (found[0].q, new.q), "qd": (found[0].qd, new.qd)}
        for field in ("qdd", "constraint_force", "actuator_force"):
            pairs[field] = (vars(found[1])[field], vars(solved)[field])
        for field, (one, other) in pairs.items():
            apart = norm(one - other) / (1.0 + norm(other))
            require(
                apart < 1e-6,
                f"{name}, `{field}` of `advance` differs by a fraction of {apart:.1e}",
            )


def coordinates(kit: PipelineKit) -> None:
    """`q` and `qd` have the same meaning as in `Generalized`, and shorter steps
    converge to its results.

    Free joints: velocity in world axes, angular velocity in body axes; quaternions
    scalar first.
    """
    for name, run in (("box", _spinning), ("pendulum", _swinging)):
        exact, start, _ = run(kit, 0.125)
        reference = kit.reference(exact, start.q, start.qd)
        twice = with_dt(exact, 2.0)
        rough = kit.reference(twice, start.q, start.qd)
        at = STEPS // 8
        error = {}
        for share, k in ((1.0, at - 1), (0.5, 2 * at - 1)):
            _, _, path = run(kit, share)
            near = _change(exact, reference, STEPS - 1, path, k)
            far = _change(exact, rough, STEPS // 2 - 1, path, k)
            # Euler's error is of first order: extrapolation from two step sizes removes
            # it.
            error[share] = norm(2.0 * near - far)
        gone = norm(_change(exact, start, None, reference, STEPS - 1))
        few, many = error[1.0] / gone, error[0.5] / gone
        require(
            few < 0.1 and many < 0.75 * few + 1e-5,
            f"the {name} is off by {few:.2%} of its displacement, and by {many:.2%} with "
            "half the time step; at most 10 %, and half of that, are expected",
        )


def _change(sys: System, start, k: int | None, end, last: int) -> np.ndarray:
    """Compute the difference of two states, in tangent coordinates."""
    q, qd = (start.q, start.qd) if k is None else (start.q[k], start.qd[k])
    turned = difference(sys, q, end.q[last])
    return np.concatenate([turned, end.qd[last] - qd])


# A law with the names of those that must hold for it to be meaningful, causes first.
_ALIKE = "jit", "structure"
_LOOP = *_ALIKE, "scan"
_SMOOTH = *_LOOP, "grad"
LAWS = {
    jit: (),
    structure: ("jit",),
    scan: _ALIKE,
    vmap: _LOOP,
    retrace: _ALIKE,
    precision: _ALIKE,
    serialization: ("jit",),
    rebuild: (),
    refusals: ("jit",),
    aux: _LOOP,
    free_fall: _ALIKE,
    linear_momentum: _ALIKE,
    angular_momentum: _ALIKE,
    energy: _ALIKE,
    coordinates: _ALIKE,
    contact: _LOOP,
    forces: (*_LOOP, "contact"),
    advance: _LOOP,
    grad: _LOOP,
    gradients_q: _SMOOTH,
    gradients_qd: _SMOOTH,
    gradients_ctrl: _SMOOTH,
    gradients_sys: _SMOOTH,
    sensitivity: (*_SMOOTH, "contact", "gradients_sys"),
}
