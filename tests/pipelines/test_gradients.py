"""A step is differentiable: forward mode = reverse mode = differences, by every number.

Each model takes one step from several states at once. Outputs are kept apart by state, so
that what is wrong in one cannot hide behind another.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import mujoco
import numpy as np
import pytest

from eqsim import Generalized, load_mjcf, State


PIPELINE = Generalized()

# A free capsule that carries a hinged sphere, above a plane. The numbers of the shapes
# differ, so that how they are mixed counts; the plane is the most slippery of them.
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


class States(NamedTuple):
    """Named states, with one axis in front."""

    names: tuple[str, ...]
    arrays: tuple[jax.Array, ...]


def states(sys, places):
    """`places` hold `q` and `qd` by name; activation, control and external forces are
    drawn."""
    rng, count = np.random.default_rng(0), len(places)
    draw = lambda *shape: jnp.asarray(0.3 * rng.normal(size=(count, *shape)))
    q, qd = (jnp.asarray(np.stack(x)) for x in zip(*places.values()))
    rest = draw(sys.na), draw(sys.nu), draw(sys.nlink, 6)
    return States(tuple(places), (q, qd, *rest))


def step(sys, arrays):
    """All that comes out of a step: one row of numbers per state."""

    def one(q, qd, act, ctrl, external):
        out = PIPELINE.step(sys, State(q, qd, act), ctrl, external)
        return jnp.concatenate([out.q, out.qd, out.act])

    return jax.vmap(one)(*arrays)


class Derivatives:
    """A step and its derivatives, compiled once for all numbers."""

    def __init__(self, sys, state):
        self.args = sys, state.arrays
        self.states = state.names
        paths, self.treedef = jtu.tree_flatten_with_path(self.args)
        self.names = [jtu.keystr(path) for path, _ in paths]
        self.leaves = [leaf for _, leaf in paths]
        value = lambda xs: step(*jtu.tree_unflatten(self.treedef, xs))
        self.value = jax.jit(value)
        self.push = jax.jit(lambda xs, ts: jax.jvp(value, (xs,), (ts,))[1])
        self.pull = jax.jit(lambda xs, c: jax.vjp(value, xs)[1](c)[0])

    def check(self, rtol=2e-5, atol=1e-6, eps=1e-6):
        """Asserts that forward mode, reverse mode and differences agree: in each state,
        along a random direction of each array.

        **Returns:** for each state the gradient by `(sys, arrays)` of a random sum of
        what comes out of it.
        """
        rng, gradients = np.random.default_rng(0), {}
        weights = rng.normal(size=self.value(self.leaves).shape)
        for k, state in enumerate(self.states):
            only = np.zeros_like(weights)
            only[k] = weights[k]
            pulled = self.pull(self.leaves, jnp.asarray(only))
            gradients[state] = [np.asarray(x) for x in pulled]
        for i, (name, leaf) in enumerate(zip(self.names, self.leaves)):
            scale = float(np.max(np.abs(leaf), initial=0.0)) or 1.0
            tangent = jnp.asarray(scale * rng.normal(size=leaf.shape))
            along = self.push(self.leaves, self._moved(i, tangent, 0.0))
            plus, minus = (
                self.value(self._moved(i, leaf + s * tangent)) for s in (eps, -eps)
            )
            slope = (plus - minus) / (2 * eps)
            for k, state in enumerate(self.states):
                where = f"{state}, by {name}"
                bound = atol + rtol * np.max(np.abs(slope[k]))
                gap = np.max(np.abs(along[k] - slope[k]))
                assert gap <= bound, f"{where}: forward mode: {gap} > {bound}"
                reverse = np.sum(gradients[state][i] * tangent)
                gap = np.abs(np.sum(weights[k] * along[k]) - reverse)
                bound = 1e-9 * (1.0 + np.max(np.abs(along[k])))
                assert gap <= bound, f"{where}: reverse mode: {gap} > {bound}"
        build = lambda leaves: jtu.tree_unflatten(self.treedef, leaves)
        return {state: build(leaves) for state, leaves in gradients.items()}

    def _moved(self, i, leaf, rest=1.0):
        out = [rest * x for x in self.leaves]
        out[i] = leaf
        return out


def assert_counted(gradients, must_count):
    """No zero where a number matters, and no NaN anywhere."""
    for state, (by_sys, by_state) in gradients.items():
        for leaf in jtu.tree_leaves((by_sys, by_state)):
            assert np.all(np.isfinite(leaf)), state
        for name, where in must_count[state].items():
            entries = where(by_sys)
            assert np.all(entries != 0), f"{state}: {name}: {entries}"


def forces(model, q, qd, count=0):
    """What MuJoCo computes in a state, after `count` steps."""
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
    # Where the contact of the capsule starts, 1 mm above the plane. Differences reach 5
    # micrometers.
    onset, hair = 0.101 + 0.2 * np.cos(np.deg2rad(80)), 2e-5
    falling = [0.3, 0.1, -1.0, 0.2, 0.1, -0.3, 0.5]
    spin = np.array([0.3, 0.1, 0.2, 0.2, 0.1, -0.3, 0.5])
    return {
        "neutral": at(0.5),
        "air": (np.array([0.1, 0.2, 0.6, 0.5, 0.5, -0.6, 0.4, 0.2]), spin),
        "sliding": at(0.1335, qd=[1.5, 0.8, -0.1, 0.2, 0.1, -0.3, 0.4]),
        "sticking": (rest.qpos - 0.002 * np.eye(8)[2], 0.003 * spin),
        "rest": (rest.qpos, np.zeros(7)),
        "limit": at(0.5, 0.6, [0, 0, 0, 0, 0, 0, 0.1]),
        "just above": at(onset + hair, qd=falling),
        "just below": at(onset - hair, qd=falling),
    }


# What must count in which state: entries of the gradient that must not be zero.
EVERYWHERE = {
    "mass": lambda s: s.links.mass,
    "com": lambda s: s.links.com,
    "gravity": lambda s: s.gravity,
    "compensation": lambda s: s.links.gravity_compensation[:1],
    "dt": lambda s: s.dt,
    "gear": lambda s: s.actuators.gear[0, 0],
    "gain": lambda s: s.actuators.gain[0, 0],
    "bias": lambda s: s.actuators.bias[0, 0],
    "time constant": lambda s: s.actuators.time_constant,
    "armature": lambda s: s.joints.armature[6],
    "stiffness": lambda s: s.joints.stiffness[1],
    "spring": lambda s: s.joints.spring_ref[7],
    "inertia": lambda s: s.links.inertia,
    "inertia axes": lambda s: s.links.inertia_quat[0],
    "place of a link": lambda s: s.links.pos[1],
    "axis": lambda s: s.joints.axis[1],
}
TOUCHING = {
    "size": lambda s: s.geoms.size[1, :2],
    "place": lambda s: s.geoms.pos[1],
    "orientation": lambda s: s.geoms.quat[1],
    "friction": lambda s: s.geoms.friction[1, 0],
    "solref": lambda s: s.geoms.solref[:2],
    "solmix": lambda s: s.geoms.solmix[:2],
    "largest impedance": lambda s: s.geoms.solimp[:2, 1],
    "impratio": lambda s: s.impratio,
}
MUST_COUNT = {
    "neutral": {"dry friction": lambda s: s.joints.friction_solimp[6, 0]},
    "air": {
        "damping": lambda s: s.joints.damping[6],
        "dry friction": lambda s: s.joints.frictionloss[6],
    },
    "sliding": TOUCHING
    | {
        "damping": lambda s: s.joints.damping[6],
        "solimp": lambda s: s.geoms.solimp[1],
        "margin": lambda s: s.geoms.margin[:2],
    },
    "sticking": TOUCHING | {"radius": lambda s: s.geoms.size[2, 0]},
    "just above": {},
    "just below": TOUCHING | {"solimp": lambda s: s.geoms.solimp[1, :2]},
    "rest": TOUCHING | {"solimp": lambda s: s.geoms.solimp[1]},
    "limit": {
        "range": lambda s: s.joints.range[1, 1],
        "solref": lambda s: s.joints.limit_solref[1],
        "solimp": lambda s: s.joints.limit_solimp[1],
        "margin": lambda s: s.joints.limit_margin[1],
    },
}


@pytest.fixture(scope="module")
def ground():
    text = GROUND
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    return model, sys, ground_places(model)


def test_ground_states_are_what_they_are_called(ground):
    model, _, places = ground
    at = {k: forces(model, *place) for k, place in places.items()}
    kinds = mujoco.mjtConstraint
    select = lambda d, kind: d.efc_force[d.efc_type == kind]
    edges = {k: select(d, kinds.mjCNSTR_CONTACT_PYRAMIDAL) for k, d in at.items()}
    free = ("neutral", "air", "limit", "just above")
    assert all(edges[k].size == 0 for k in free)
    assert edges["just below"].size == 4
    assert np.any(edges["sliding"] == 0) and np.any(edges["sliding"] > 0)
    assert all(np.all(edges[k] > 0) and edges[k].size for k in ("sticking", "rest"))
    limits = select(at["limit"], kinds.mjCNSTR_LIMIT_JOINT)
    assert limits.size and np.all(limits > 0)
    rubbing = {k: select(d, kinds.mjCNSTR_FRICTION_DOF) for k, d in at.items()}
    assert np.all(np.abs(rubbing["neutral"]) < 1.0)
    assert np.all(np.abs(rubbing["air"]) == 1.5)


def test_ground(ground):
    """The whole system, on the path without a dense matrix."""
    _, sys, places = ground
    gradients = Derivatives(sys, states(sys, places)).check()
    must = {k: EVERYWHERE | v for k, v in MUST_COUNT.items()}
    assert_counted(gradients, must)


def test_collision():
    """Contacts between two links that move."""
    sys = load_mjcf(COLLISION)
    places = {
        "apart": (np.array([0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3])),
        "neutral": (np.array([0.0, 0.3, 0.0]), np.zeros(3)),
        "sliding": (np.array([0.0, -0.055, 0.0]), np.array([0.5, -0.2, 1.5])),
        "pressed": (np.array([0.0, -0.07, 0.0]), np.zeros(3)),
        "two points": (np.array([0.0, -0.1, 0.0]), np.array([0.1, -0.2, 0.1])),
    }
    gradients = Derivatives(sys, states(sys, places)).check()
    touching = {
        "mass": lambda s: s.links.mass,
        "size": lambda s: s.geoms.size[:2, 0],
        "place": lambda s: s.geoms.pos[:2, 0],
        "friction": lambda s: s.geoms.friction[1, 0],
        "solref": lambda s: s.geoms.solref[:2],
        "largest impedance": lambda s: s.geoms.solimp[:2, 1],
        "damping": lambda s: s.joints.damping[[0, 2]],
        "dt": lambda s: s.dt,
    }
    still = {"mass": lambda s: s.links.mass, "gravity": lambda s: s.gravity[::2]}
    contact = ("sliding", "pressed", "two points")
    must = {k: touching if k in contact else still for k in places}
    must["pressed"] = must["two points"] = {
        k: v for k, v in touching.items() if k != "damping"
    }
    assert_counted(gradients, must)


def test_ball():
    """Limits of a ball joint, Runge-Kutta, and quaternions at the identity."""
    sys = load_mjcf(BALL)
    turned = lambda angle, *axis: np.array(
        [np.cos(angle / 2), *(np.sin(angle / 2) * np.array(axis))]
    )
    places = {
        "neutral": (turned(0.0, 0, 0, 1), np.zeros(3)),
        "free": (turned(0.9, 0, 0.6, 0.8), np.array([0.3, 0.2, -0.4])),
        "limit": (turned(1.2, 0, 0.6, 0.8), np.array([0.3, 0.2, -0.4])),
        "limit at rest": (turned(1.3, 0.6, 0.8, 0.0), np.zeros(3)),
        "ground": (turned(0.1, 0.6, 0.8, 0.0), np.array([0.3, -0.4, 0.1])),
    }
    gradients = Derivatives(sys, states(sys, places)).check()
    moving = {
        "mass": lambda s: s.links.mass,
        "inertia": lambda s: s.links.inertia,
        "armature": lambda s: s.joints.armature,
        "gravity": lambda s: s.gravity,
        "gear": lambda s: s.actuators.gear[0, :3],
        "damping": lambda s: s.joints.damping,
        "stiffness": lambda s: s.joints.stiffness,
        "dt": lambda s: s.dt,
    }
    limit = {
        "range": lambda s: s.joints.range[0, 1],
        "solref": lambda s: s.joints.limit_solref[0],
        "solimp": lambda s: s.joints.limit_solimp[0],
    }
    neutral = {"mass": moving["mass"], "gear": moving["gear"], "dt": moving["dt"]}
    must = {"neutral": neutral, "free": moving, "ground": neutral}
    must |= {"limit": moving | limit, "limit at rest": limit}
    assert_counted(gradients, must)
