"""Comparison of derivatives of a step with finite differences, in many situations."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import mujoco
import numpy as np

from eqsim import AbstractPipeline, Generalized, Positional, Spring, State, System

from .reference import quick_compile


# A free capsule that carries a hinged sphere, above a plane. The parameters of the
# shapes differ, so that mixing them matters; the plane is the most slippery.
GROUND = """
<mujoco>
  <option timestep="0.004" impratio="1.5"/>
  <worldbody>
    <geom type="plane" size="1 1 1" friction=".6" solref=".03 .9" solmix="2"/>
    <body pos="0 0 .5" gravcomp=".1"><freejoint/>
      <geom type="capsule" size=".1 .2" euler="0 80 0" friction=".8" margin=".001"
        solimp=".8 .95 .01 .5 2"/>
      <body pos=".3 0 0" euler="10 0 0">
        <joint name="hinge" axis="0 1 .1" range="-30 30" limited="true" damping=".3"
          armature=".02" stiffness="2" springref="10" frictionloss="1.5"
          solimplimit=".8 .95 .4 .5 2"/>
        <geom type="sphere" size=".12" pos=".1 0 .01" friction=".7"
          solimp=".8 .95 .01 .5 2"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <general joint="hinge" gear=".3" gainprm="2" biastype="affine" biasprm=".1 -.2 -.3"
      dyntype="filter" dynprm=".05"/>
  </actuator>
</mujoco>"""

# Two pendulums that touch, one of them on a slide: the dense path.
COLLISION = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <body><joint axis="0 1 0" damping=".1" armature=".01"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".05" friction=".6"
        solimp=".8 .95 .01 .5 2"/>
    </body>
    <body pos=".2 .02 0"><joint type="slide" axis="1 .03 0"/>
      <joint name="arm" axis="0 1 .05" damping=".1"/>
      <geom type="sphere" size=".1" pos="0 0 -.3" friction="2"
        solimp=".8 .95 .01 .5 2"/>
      <geom type="capsule" fromto="-.05 -.1 -.55 -.05 .2 -.5" size=".05"/>
    </body>
  </worldbody>
  <actuator><motor joint="arm" gear="2"/></actuator>
</mujoco>"""

# A pendulum on a ball joint with a limit, above a plane.
BALL = """
<mujoco>
  <option timestep="0.004" integrator="RK4"/>
  <worldbody>
    <geom type="plane" size="1 1 1" pos="0 0 -.4"/>
    <body><joint type="ball" name="ball" range="0 60" limited="true" damping=".2"
        stiffness="1" armature=".01" solimplimit=".8 .95 .4 .5 2"/>
      <geom type="sphere" pos="0.01 0 -.25" size=".1" friction=".5"/>
    </body>
  </worldbody>
  <actuator><motor joint="ball" gear="1 2 3"/></actuator>
</mujoco>"""


# Nonzero parameters of the pipelines, because some derivatives do not exist at zero.
ENGINES = {
    Generalized: Generalized(smoothing=1e-3),
    Spring: Spring(damping=0.9, restitution=0.1),
    Positional: Positional(
        compliance=1e-7, angular_compliance=1e-6, relaxation=0.9, restitution=0.1
    ),
}


class States(NamedTuple):
    """Named states, with a leading axis."""

    names: tuple[str, ...]
    arrays: tuple[jax.Array, ...]


def states(sys, places):
    """Stack states: `places` contains `q` and `qd` by name, and optionally a scale of
    activations and controls; these and external forces are drawn."""
    rng, count = np.random.default_rng(0), len(places)
    draw = lambda *shape: 0.3 * rng.normal(size=(count, *shape))
    q, qd = (jnp.asarray(np.stack(x)) for x in zip(*(v[:2] for v in places.values())))
    scale = np.array([(*place, 1.0)[2] for place in places.values()])[:, None]
    inputs = scale * draw(sys.na), scale * draw(sys.nu), draw(sys.nlink, 6)
    return States(tuple(places), (q, qd, *map(jnp.asarray, inputs)))


@dataclasses.dataclass(frozen=True)
class Found:
    """The derivative of a step in one state, along a direction of one array.

    - `element`: entries of the array that the direction changes; empty for all.
    - `output`: name of the output.
    - `size`: largest entry of the derivative, from finite differences.
    - `forward`: difference of forward mode from finite differences.
    - `reverse`: difference of reverse mode from forward mode, for a random sum of the
        outputs.
    - `bend`: difference between the one-sided derivatives, in the limit of short steps.
    """

    state: str
    name: str
    size: float
    forward: float
    reverse: float
    bend: float
    element: str = ""
    output: str = ""

    @property
    def smooth(self) -> bool:
        """True if finite differences give the derivative: no kink of the model, such as
        a contact that begins or slips, is within the stencil. At a kink, the error of
        forward mode is about the difference between the one-sided derivatives."""
        wrong = self.forward > 1e-5 * max(self.size, 0.05)
        return not (wrong and self.forward <= 2.0 * self.bend < np.inf)

    @property
    def error(self) -> float:
        """The larger of both errors, relative to the derivative, or to 0.05 if that is
        larger."""
        worse = float(np.maximum(self.forward, self.reverse))
        return worse / max(self.size, 0.05) if np.isfinite(worse) else np.inf


class Derivatives:
    """A step and its derivatives, compiled once.

    **Arguments:**

    - `sys`, `states`: the robot, and the initial states of the step.
    - `pipeline`: the physics.
    - `output`: function that returns the differentiated arrays by name, with a leading
        axis of states; by default the next state.
    """

    def __init__(
        self,
        sys: System,
        states: States,
        pipeline: AbstractPipeline,
        output: Callable[..., dict[str, jax.Array]] | None = None,
    ):
        self.states, output = states.names, output or _step
        # Values that were created in single precision too.
        self.inputs = jtu.tree_map(
            lambda x: x.astype(float) if eqx.is_inexact_array(x) else x,
            (sys, states.arrays, pipeline),
        )
        paths, self.treedef = jtu.tree_flatten_with_path(self.inputs)
        self.names = [jtu.keystr(path) for path, _ in paths]

        def named(leaves):
            sys, arrays, pipeline = jtu.tree_unflatten(self.treedef, leaves)
            return output(pipeline, sys, arrays)

        def value(leaves):
            return jnp.concatenate(list(named(leaves).values()), axis=1)

        shapes = jax.eval_shape(named, jtu.tree_leaves(self.inputs))
        ends = np.cumsum([x.shape[1] for x in shapes.values()])
        self.outputs = {
            name: slice(int(end - x.shape[1]), int(end))
            for (name, x), end in zip(shapes.items(), ends)
        }
        compiled = lambda fn: jax.jit(fn, compiler_options=quick_compile())
        self.value = compiled(value)
        self.push = compiled(lambda xs, ts: jax.jvp(value, (xs,), (ts,))[1])
        self.pull = compiled(lambda xs, c: jax.vjp(value, xs)[1](c)[0])

    def compare(
        self,
        pipeline: AbstractPipeline | None = None,
        eps: tuple[float, float] = (1e-6, 4e-6),
        elements: Callable[[str], dict[str, Any]] = lambda name: {"": 1.0},
    ) -> tuple[list[Found], dict[str, Any]]:
        """Compare forward mode, reverse mode and fourth-order differences, in each
        state, along a random direction of each array.

        **Arguments:**

        - `pipeline`: the same pipeline with other parameters, with respect to which it
            is then differentiated; by default, with respect to the robot and the state.
        - `eps`: steps of the differences, of which the better one counts: short ones
            suffer from rounding, long ones from curvature.
        - `elements`: masks of groups of entries, by name of the array and of the group;
            each group has its own direction.

        **Returns:** results, and for each state the gradient of a random sum of the
        outputs with respect to `(sys, arrays, pipeline)`.
        """
        rng, found = np.random.default_rng(0), []
        inputs = self.inputs if pipeline is None else (*self.inputs[:2], pipeline)
        wanted = [x.dtype for x in jtu.tree_leaves(self.inputs)]
        # Strict, because a parameter that the pipeline lacks would be left out
        # silently.
        pairs = zip(jtu.tree_leaves(inputs), wanted, strict=True)
        leaves = [x.astype(t) for x, t in pairs]
        weights = rng.normal(size=self.value(leaves).shape)
        gradients = {
            (state, output): [
                np.asarray(x) for x in self.pull(leaves, _only(weights, k, where))
            ]
            for k, state in enumerate(self.states)
            for output, where in self.outputs.items()
        }
        for i, (name, leaf) in enumerate(zip(self.names, leaves)):
            if name.startswith("[2]") == (pipeline is None):
                continue
            for element, mask in elements(name).items():
                own = np.asarray(leaf * mask)
                scale = float(np.max(np.abs(own), initial=0.0)) or 1.0
                tangent = jnp.asarray(mask * scale * rng.normal(size=leaf.shape))
                for x in self._along(leaves, i, tangent, weights, gradients, eps):
                    found.append(Found(x[0], name, *x[2:], element, x[1]))
        build = lambda leaves: jtu.tree_unflatten(self.treedef, leaves)
        total = {
            state: build(
                [sum(x) for x in zip(*(gradients[state, o] for o in self.outputs))]
            )
            for state in self.states
        }
        return found, total

    def _along(self, leaves, i, tangent, weights, gradients, eps):
        """Return state, output and errors along one direction."""
        direction = _moved([0.0 * x for x in leaves], i, tangent)
        along = np.asarray(self.push(leaves, direction))
        slopes = [self._slopes(leaves, i, tangent, h) for h in eps]
        # The part proportional to the step is curvature.
        ratio, (short, long) = eps[1] / eps[0], (bend for _, bend in slopes)
        bend = (ratio * short - long) / (ratio - 1.0)
        largest = lambda x: float(np.max(np.abs(x), initial=0.0))
        for k, state in enumerate(self.states):
            for output, where in self.outputs.items():
                reverse = np.sum(gradients[state, output][i] * tangent)
                forward = along[k, where]
                gaps = [largest(forward - slope[k, where]) for slope, _ in slopes]
                yield (
                    state,
                    output,
                    largest(slopes[0][0][k, where]),
                    min(gaps) if np.all(np.isfinite(gaps)) else np.inf,
                    float(np.abs(np.sum(weights[k, where] * forward) - reverse)),
                    largest(bend[k, where]),
                )

    def _slopes(self, leaves, i, tangent, eps):
        """Return the derivative, and the difference of the one-sided derivatives."""
        at = {
            s: np.asarray(self.value(_moved(leaves, i, leaves[i] + s * eps * tangent)))
            for s in (-2, -1, 0, 1, 2)
        }
        slope = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * eps)
        return slope, (at[2] - 2 * at[0] + at[-2]) / (2 * eps)


def _only(weights, k, where):
    only = np.zeros_like(weights)
    only[k, where] = weights[k, where]
    return jnp.asarray(only)


def _moved(leaves, i, leaf):
    return [*leaves[:i], leaf, *leaves[i + 1 :]]


def _step(pipeline: AbstractPipeline, sys: System, arrays):
    """Return all outputs of a step: one row per state."""

    def one(q, qd, act, ctrl, external):
        out = pipeline.step(sys, State(q, qd, act), ctrl, external)
        return jnp.concatenate([out.q, out.qd, out.act])

    return {"": jax.vmap(one)(*arrays)}


def sensor_values(pipeline: Generalized, sys: System, arrays):
    """Return the values of all sensors."""

    def one(q, qd, act, ctrl, external):
        values = pipeline.sensors(sys, State(q, qd, act), ctrl, external, 0.5)
        return {name: jnp.reshape(x, -1) for name, x in values.items()}

    return jax.vmap(one)(*arrays)


def forces(model, q, qd, count=0):
    """Compute forces with MuJoCo in a state, after `count` steps."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = q, qd
    mujoco.mj_step(model, data, nstep=count)
    mujoco.mj_forward(model, data)
    return data


def ground_places(model):
    def at(height, angle=0.0, qd=0.0):
        q = np.array([0, 0, height, 1.0, 0, 0, 0, angle])
        return q, np.broadcast_to(qd, 7).astype(float)

    rest = forces(model, *at(0.2), count=2000)
    # The contact of the capsule begins 1 mm above the plane. Differences reach 5
    # micrometers.
    onset, hair = 0.101 + 0.2 * np.cos(np.deg2rad(80)), 2e-5
    falling = [0.3, 0.1, -1.0, 0.2, 0.1, -0.3, 0.5]
    spin = np.array([0.3, 0.1, 0.2, 0.2, 0.1, -0.3, 0.5])
    return {
        "neutral": at(0.5),
        "air": (np.array([0.1, 0.2, 0.6, 0.5, 0.5, -0.6, 0.4, 0.2]), spin),
        "sliding": at(0.1335, qd=[4.5, 2.4, -0.1, 0.2, 0.1, -0.3, 0.4]),
        "sticking": (rest.qpos - 0.002 * np.eye(8)[2], 0.003 * spin),
        "rest": (rest.qpos, np.zeros(7)),
        "limit": at(0.5, 0.6, [0, 0, 0, 0, 0, 0, 0.1]),
        "just above": at(onset + hair, qd=falling),
        "just below": at(onset - hair, qd=falling),
    }
