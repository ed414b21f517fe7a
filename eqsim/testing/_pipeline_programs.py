"""Checks of pipelines as programs: compiled, batched, repeated, differentiated."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from ._check import NotApplicable
from ._compare import same_shapes
from ._gradients import compare
from ._pipeline_kit import init_state, next_state, PipelineKit
from ._tools import (
    in_precision,
    moved,
    no_trace,
    require,
    require_arrays,
    require_equal,
    require_finite,
    require_rebuild,
    require_round_trip,
    rounding,
)


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
    for x64, dtype in ((False, "float32"), (True, "float32"), (True, "float64")):
        with jax.enable_x64(x64):
            found = _shapes(*in_precision((kit.given, kit.ball), dtype))
        for name, state in zip(("init", "step"), found, strict=True):
            for path, leaf in jtu.tree_leaves_with_path(state):
                if jnp.issubdtype(leaf.dtype, jnp.inexact) and leaf.dtype != dtype:
                    where = "with" if x64 else "without"
                    raise AssertionError(
                        f"`{name}`: {jtu.keystr(path)} is {leaf.dtype} for a robot in "
                        f"{dtype}, {where} `jax_enable_x64`"
                    )


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
        row = jtu.tree_map(lambda x: x[k], together)
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
        row = jtu.tree_map(lambda x: x[k], kit.settled)
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
    _compare(kit, "[0]")


def gradients_qd(kit: PipelineKit) -> None:
    """Derivatives of a step with respect to velocities agree: forward mode, reverse
    mode and finite differences, in the air, at rest and in contact.

    Look for `stop_gradient`, and for values read from `aux` that `qd` determines.
    """
    _compare(kit, "[1]")


def gradients_ctrl(kit: PipelineKit) -> None:
    """Derivatives of a step with respect to controls agree: forward mode, reverse mode
    and finite differences, in the air, at rest and in contact.

    Look for `stop_gradient`, for rounding, and for custom rules.
    """
    _compare(kit, "[2]")


def gradients_sys(kit: PipelineKit) -> None:
    """Derivatives of a step with respect to parameters of the robot agree: forward
    mode, reverse mode and finite differences, in the air, at rest and in contact.

    Look for values that are read outside JAX, for solvers that stop before convergence,
    and for custom rules.
    """
    _compare(kit, "[3]")


def _compare(kit: PipelineKit, prefix: str) -> None:
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
