"""A step is differentiable: forward mode = reverse mode = differences, by every number.

Each model takes one step from several states at once. Outputs are kept apart by state, so
that what is wrong in one cannot hide behind another.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import mujoco
import numpy as np
import pytest
from helpers import check_gradients

from eqsim import Generalized, load_mjcf


PIPELINE = Generalized()

# A free capsule that carries a hinged sphere, above a plane. The numbers of the shapes
# differ, so that how they are mixed counts; the plane is the most slippery of them.
GROUND = """
<mujoco>
  <option timestep="0.004" integrator="{integrator}" impratio="1.5"/>
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

# A pendulum on a ball joint, a free body, and contacts between the two: these, and the
# limit of the ball joint, take the dense path.
COLLISION = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <body><joint type="ball" name="ball" range="0 40" limited="true" damping=".2"
        stiffness="1" armature=".01"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".05"
        solimp=".8 .95 .01 .5 2"/>
    </body>
    <body pos=".2 .02 -.4"><freejoint/>
      <geom type="sphere" size=".1" friction=".5" solimp=".8 .95 .01 .5 2"/>
      <geom type="capsule" fromto=".05 -.1 .15 .1 .2 .2" size=".04"/>
    </body>
  </worldbody>
  <actuator><motor joint="ball" gear="1 2 3"/></actuator>
</mujoco>"""


class States(NamedTuple):
    """Named states, with one axis in front."""

    names: tuple[str, ...]
    q: jax.Array
    qd: jax.Array
    act: jax.Array
    ctrl: jax.Array
    external: jax.Array


def states(sys, places):
    """`places` hold `q` and `qd` by name; the rest is drawn."""
    rng, count = np.random.default_rng(0), len(places)
    draw = lambda *shape: jnp.asarray(rng.normal(size=(count, *shape)))
    q, qd = (jnp.asarray(np.stack(x)) for x in zip(*places.values()))
    external = 0.3 * draw(sys.nlink, 6)
    return States(tuple(places), q, qd, draw(sys.na), draw(sys.nu), external)


def step(sys, state):
    """The next coordinates and velocities, by the names of the states."""

    def one(q, qd, act, ctrl, external):
        start = eqx.tree_at(lambda s: s.act, PIPELINE.init(sys, q, qd), act)
        out = PIPELINE.step(sys, start, ctrl, external)
        return out.q, out.qd, out.act

    out = jax.vmap(one)(*state[1:])
    return {n: jtu.tree_map(lambda x: x[k], out) for k, n in enumerate(state.names)}


def check(sys, state):
    """By every number of the system, and by state, control and external force."""
    fn = lambda sys, arrays: step(sys, States(state.names, *arrays))
    return check_gradients(fn, sys, tuple(state[1:]), rtol=2e-5, atol=1e-6)


def gradients(sys, state):
    """Of a random sum of the next coordinates and velocities, one entry per state."""

    @jax.jit
    @jax.vmap
    def each(weight, *arrays):
        def total(args):
            sys, arrays = args
            one = States(("one",), *(x[None] for x in arrays))
            parts = jnp.concatenate(step(sys, one)["one"])
            return jnp.sum(weight * parts)

        return jax.grad(total)((sys, arrays))

    size = sys.nq + sys.nv + sys.na
    weight = np.random.default_rng(1).normal(size=(len(state.names), size))
    by_sys, by_state = each(jnp.asarray(weight), *state[1:])
    at = lambda k: jtu.tree_map(lambda x: np.asarray(x[k]), (by_sys, by_state))
    return {name: at(k) for k, name in enumerate(state.names)}


def forces(model, q, qd, count=0):
    """MuJoCo's row forces, after `count` steps; and the state."""
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
    spin = np.array([0.3, 0.1, 0.2, 0.2, 0.1, -0.3, 0.5])
    return {
        "neutral": at(0.5),
        "air": (np.array([0.1, 0.2, 0.6, 0.5, 0.5, -0.6, 0.4, 0.2]), spin),
        "sliding": at(0.13, qd=[1.5, 0.8, -0.1, 0.2, 0.1, -0.3, 0.4]),
        "sticking": (rest.qpos - 0.002 * np.eye(8)[2], 0.003 * spin),
        "rest": (rest.qpos, np.zeros(7)),
        "limit": at(0.5, 0.6, [0, 0, 0, 0, 0, 0, 0.1]),
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
    text = GROUND.format(integrator="Euler")
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    return model, sys, states(sys, ground_places(model))


def test_ground_states_are_what_they_are_called(ground):
    model, _, _ = ground
    at = {k: forces(model, *place) for k, place in ground_places(model).items()}
    contact = mujoco.mjtConstraint.mjCNSTR_CONTACT_PYRAMIDAL
    edges = {k: d.efc_force[d.efc_type == contact] for k, d in at.items()}
    assert all(edges[k].size == 0 for k in ("neutral", "air", "limit"))
    assert np.any(edges["sliding"] == 0) and np.any(edges["sliding"] > 0)
    assert all(np.all(edges[k] > 0) and edges[k].size for k in ("sticking", "rest"))
    limit = mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT
    assert np.all(at["limit"].efc_force[at["limit"].efc_type == limit] > 0)
    stuck = mujoco.mjtConstraintState.mjCNSTRSTATE_QUADRATIC
    assert at["neutral"].efc_state[0] == at["rest"].efc_state[0] == stuck
    assert at["air"].efc_state[0] != stuck


def test_ground(ground):
    _, sys, state = ground
    largest = check(sys, state)
    assert all(np.isfinite(x) for x in largest.values())
