"""Integrators beside MuJoCo C, their derivatives, and how they relate to each other."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from trajectories import converged, draw, expected, follow

import eqsim
from eqsim import Generalized, load_mjcf, State
from eqsim.io import write_mjcf
from eqsim.model import Integrator
from eqsim.pipelines import AbstractOneSolve, Euler, Implicit, ImplicitFast
from eqsim.testing import random_configuration, random_system


IMPLICIT = {
    Integrator.IMPLICIT: Implicit(),
    Integrator.IMPLICIT_FAST: ImplicitFast(),
}
both = pytest.mark.parametrize("integrator", IMPLICIT, ids=lambda x: x.value)

# A free body with an actuator, damping and a fixed child, and one that carries a chain
# with actuators on a ball joint, one of them at its limit; ellipsoids and boxes in wind.
MIXED = """
<mujoco>
  <option timestep="0.005" integrator="{}" density="60" viscosity=".3" wind=".3 -.2 .1"/>
  <default><geom contype="0" conaffinity="0" fluidshape="ellipsoid"/></default>
  <worldbody>
    <body><joint type="free" name="lone" damping=".4" armature=".1"/>
      <geom type="ellipsoid" size=".1 .2 .3" pos=".05 .1 .02" euler="20 30 40"/>
      <body pos=".2 0 0"><geom type="capsule" size=".05 .2" fluidcoef="1 .3 1.2 .7 .6"/></body>
    </body>
    <body pos="2 0 0"><joint type="free" name="base"/>
      <geom type="box" size=".1 .15 .05" pos=".1 0 0"/>
      <body pos=".4 0 0"><joint type="ball" name="ball" damping=".1"/>
        <geom type="cylinder" size=".1 .2" pos=".1 .1 0" euler="30 0 0"/>
        <geom size=".1" fluidcoef="2 1 .5 .1 3" pos="0 0 .1"/>
        <body pos=".2 .3 .1"><joint type="slide" name="slide" axis="1 1 0"/>
          <joint axis="0 1 2" name="hinge"/>
          <geom fluidshape="none" type="box" size=".1 .2 .1"/></body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <velocity joint="lone" kv="3" gear="1 2 3 .1 .2 .3"/>
    <velocity joint="base" kv="3" gear="1 2 0 .1 -.2 .3"/>
    <velocity joint="ball" kv="1" gear="1 2 3"/>
    <velocity jointinparent="ball" kv="1" gear="3 -2 1"/>
    <general joint="hinge" gaintype="affine" gainprm="1 1 -1" forcerange="-.1 .1"/>
    <general joint="slide" dyntype="filter" dynprm=".05" biastype="affine"
      gainprm="20" biasprm=".1 -20 -3" actearly="true"/>
  </actuator>
</mujoco>"""


@both
@pytest.mark.quick_cases("implicit")
def test_trajectory(integrator):
    text = MIXED.format(integrator.value)
    model, sys = converged(mujoco.MjModel.from_xml_string(text)), load_mjcf(text)
    assert sys.integrator is integrator
    data = draw(model, 4)
    ours, theirs = follow(sys, data, 100), expected(model, data, 100)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


# `test_trajectory` has a robot with all of their parts.
@both
@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds",
    [range(k, k + 8) for k in range(0, 96, 8)],
    ids=lambda seeds: f"from {seeds.start}",
)
def test_random_systems(seeds, integrator):
    worst = {}
    for seed in seeds:
        sys = random_system(
            seed,
            nlink=1 + seed % 4,
            num_roots=1 + (seed % 4 == 1),
            with_fluid=seed % 2 == 0,
            with_laws=seed % 3 == 1,
            with_tendons=seed % 3 == 2,
            with_limits=seed % 3 < 2,
            integrator=integrator,
        )
        model = converged(mujoco.MjModel.from_xml_string(write_mjcf(sys)))
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MULTICCD
        model.opt.ccd_iterations, model.opt.ccd_tolerance = 500, 1e-12
        data = draw(model, 4, seed=seed)
        ours, theirs = follow(sys, data, 1), expected(model, data, 1)
        error = np.abs(ours - theirs)
        worst[seed] = np.max(error) / max(1.0, np.max(np.abs(theirs)))
    assert all(error < 1e-9 for error in worst.values()), worst


def test_implicitfast_is_euler_where_only_joints_damp():
    text = ARM.format("implicitfast")
    sys = load_mjcf(text)
    state = _state(sys)
    euler, fast = Generalized(integrator=Euler()), Generalized()
    one = jax.jit(lambda s: (euler.step(sys, s, ZERO), fast.step(sys, s, ZERO)))(state)
    np.testing.assert_allclose(one[0].qd, one[1].qd, rtol=1e-14)
    assert not np.allclose(one[0].qd, _undamped(sys, state), rtol=1e-6)


ARM = """
<mujoco>
  <option integrator="{}"/>
  <worldbody>
    <body><joint axis="0 1 0" damping="5"/><geom size=".1" pos=".2 0 0"/>
      <body pos=".4 0 0"><joint axis="1 1 0" damping="3"/><geom size=".1" pos=".2 0 0"/>
      </body>
    </body>
  </worldbody>
</mujoco>"""
ZERO = jnp.zeros(0)


def _state(sys):
    return State(*random_configuration(3, sys), jnp.zeros(0))


def _undamped(sys, state):
    return state.qd + sys.dt * Generalized().acceleration(sys, state, ZERO)


SPINNING = """
<mujoco>
  <option gravity="0 0 0" timestep=".01" integrator="{}"/>
  <worldbody><body><freejoint/><geom type="box" size=".1 .2 .3"/></body></worldbody>
</mujoco>"""


def _energies(integrator):
    sys = load_mjcf(SPINNING.format("Euler"))
    pipeline = Generalized(integrator=integrator)
    start = State(sys.joints.ref, jnp.array([0.0, 0, 0, 5.0, 20.0, 3.0]), ZERO)
    step = lambda state, _: (pipeline.step(sys, state, ZERO),) * 2
    path = jax.jit(lambda s: jax.lax.scan(step, s, None, length=200)[1])(start)
    return ENERGY(sys, path.q, path.qd)


# One program for the paths of all integrators.
ENERGY = jax.jit(jax.vmap(eqsim.dynamics.kinetic_energy, (None, 0, 0)))


def test_spinning_bodies_gain_no_energy():
    """`ImplicitFast` steps lone free bodies like `Implicit`; Euler makes them spin up."""
    implicit, fast = _energies(Implicit()), _energies(ImplicitFast())
    np.testing.assert_allclose(fast, implicit, rtol=1e-10)
    assert np.all(np.diff(fast) <= 1e-12 * fast[0])
    assert np.max(_energies(Euler())) > 1.05 * fast[0]


class _Explicit(AbstractOneSolve):
    """Explicit Euler: coordinates move at the old velocity."""

    def move(self, prepared, now):
        _, qd, act = Euler().move(prepared, now)
        return now.q + prepared.sys.dt[None] * now.qd, qd, act


def test_an_integrator_of_ones_own():
    sys = load_mjcf(ARM.format("RK4"))
    state = _state(sys)
    own = Generalized(integrator=_Explicit()).step(sys, state, ZERO)
    euler = Generalized(integrator=Euler()).step(sys, state, ZERO)
    np.testing.assert_allclose(own.q, state.q + sys.dt * state.qd, rtol=1e-14)
    np.testing.assert_array_equal(own.qd, euler.qd)


@both
@pytest.mark.slow  # `make test` runs kernels in all tests.
def test_kernels(integrator):
    """Steps compile to kernels and agree with XLA."""
    sys = load_mjcf(MIXED.format(integrator.value))
    state = State(*random_configuration(0, sys), jnp.zeros(sys.na))
    eqsim.testing.check_kernels(Generalized().step, sys, state, jnp.zeros(sys.nu))
