"""Inverse kinematics: reached targets, joint limits, derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import check_gradients

import eqsim
from eqsim import kinematics, RESULTS
from eqsim.control import inverse_kinematics, Target


ARM = eqsim.load_mjcf("""
<mujoco>
  <default><joint limited="true" range="-150 150"/>
    <geom type="capsule" size=".02" contype="0" conaffinity="0"/></default>
  <worldbody><body name="turret"><joint name="yaw" axis="0 0 1"/>
    <geom fromto="0 0 0 0 0 .3"/>
    <body name="upper" pos="0 0 .3"><joint name="shoulder" axis="0 1 0"/>
      <geom fromto="0 0 0 .4 0 0"/>
      <body name="lower" pos=".4 0 0"><joint name="elbow" axis="0 1 0"
        range="-140 0"/><geom fromto="0 0 0 .3 0 0"/>
        <body name="palm" pos=".3 0 0"><joint name="wrist" type="ball" limited="false"/>
          <geom fromto="0 0 0 .1 0 0"/><site name="tip" pos=".1 0 0"/></body>
      </body></body></body></worldbody>
</mujoco>""")
START = jnp.array([0.1, 0.2, -0.3, 1.0, 0.0, 0.0, 0.0])
LOW, HIGH = np.asarray(ARM.joints.range[:3]).T


def reachable(key):
    """The pose of the tip in a configuration within the limits."""
    one, two = jr.split(key)
    q = jnp.asarray(LOW + (HIGH - LOW) * jr.uniform(one, (3,), minval=0.3, maxval=0.7))
    q = jnp.concatenate([q, START[3:]])
    turn = jnp.concatenate([jnp.zeros(3), 0.5 * jr.normal(two, (3,))])
    return kinematics.site_poses(ARM, kinematics.integrate(ARM, q, turn))


@eqx.filter_jit
def solve(sys, targets, posture=1e-6):
    """Coordinates, and the poses of sites there."""
    found = inverse_kinematics(sys, targets, START, posture=posture)
    return found, kinematics.site_poses(sys, found.q)


def test_reaches_poses(getkey):
    for _ in range(8):
        poses = reachable(getkey())
        found, reached = solve(ARM, Target("tip", poses.pos[0], poses.rot[0]), 1e-10)
        assert found.result == RESULTS.successful
        np.testing.assert_allclose(reached.pos[0], poses.pos[0], atol=1e-6)
        np.testing.assert_allclose(reached.rot[0], poses.rot[0], atol=1e-6)
        assert found.error < 1e-5


def test_stays_within_limits():
    """A target behind a limit is approached along it."""
    target = Target("tip", jnp.array([-0.3, -0.05, 0.4]))
    found, _ = solve(ARM, target)
    tight = eqx.tree_at(
        lambda s: s.joints.range, ARM, ARM.joints.range.at[:3].multiply(0.2)
    )
    limited, _ = solve(tight, target)
    low, high = np.asarray(tight.joints.range[:3]).T
    q = np.asarray(limited.q[:3])
    assert np.all((low <= q) & (q <= high)) and np.any((q == low) | (q == high))
    assert limited.error > found.error + 0.05
    assert limited.result == RESULTS.successful


def test_a_limit_that_is_met_on_the_way_is_left_again():
    """From a start from which a step ends within rounding of a limit."""
    arm = eqsim.load_mjcf("""
<mujoco><worldbody><body><joint axis="0 1 0" limited="true" range="-28 40"/>
  <geom size=".05"/><body pos=".5 0 0"><joint axis="0 1 0"/><geom size=".05"/>
  <site name="tip" pos=".4 0 0"/></body></body></worldbody></mujoco>""")
    angle = jr.uniform(jr.key(0), (40,), minval=0.8, maxval=1.4)
    reach = jr.uniform(jr.key(1), (40,), minval=0.5, maxval=0.8)
    pos = jnp.stack([reach * jnp.cos(angle), 0.0 * reach, reach * jnp.sin(angle)], 1)
    starts = jr.uniform(jr.key(2), (40, 2), minval=-0.3, maxval=0.3)
    solve = lambda pos, q: inverse_kinematics(arm, Target("tip", pos=pos), q)
    found = eqx.filter_vmap(solve)(pos, starts)

    def slope(pos, q):
        error = lambda q: kinematics.site_poses(arm, q).pos[0] - pos
        return jax.grad(lambda q: 0.5 * jnp.sum(error(q) ** 2))(q)

    # At an optimum, only a limit holds a joint.
    slopes = np.asarray(jax.vmap(slope)(pos, found.q))
    at_limit = np.asarray(found.q[:, 0]) <= float(arm.joints.range[0, 0]) + 1e-12
    assert np.max(np.abs(slopes[:, 1])) < 1e-5 and 5 < np.sum(at_limit) < 35
    assert np.max(np.abs(slopes[~at_limit, 0])) < 1e-5
    assert np.all(slopes[at_limit, 0] > 0.0)


def test_links_and_several_targets():
    targets = (
        Target("lower", jnp.array([0.3, 0.1, 0.5]), link=True, weight=0.1),
        Target("tip", jnp.array([0.5, 0.1, 0.4])),
    )
    found, reached = solve(ARM, targets)
    np.testing.assert_allclose(reached.pos[0], targets[1].pos, atol=1e-2)
    assert found.result == RESULTS.successful


@pytest.mark.parametrize("limited", (False, True))
@pytest.mark.quick_cases("True")
def test_derivatives(limited):
    """Derivatives by target and robot: forward, reverse and finite differences agree."""
    share = 0.2 if limited else 1.0
    sys = eqx.tree_at(
        lambda s: s.joints.range, ARM, ARM.joints.range.at[:3].multiply(share)
    )
    at = jnp.array([-0.3, -0.05, 0.4]) if limited else jnp.array([0.4, 0.2, 0.5])

    def q(pos, mounts):
        moved = eqx.tree_at(lambda s: s.links.pos, sys, mounts)
        target = Target("tip", pos)
        return inverse_kinematics(moved, target, START, posture=1e-2, tolerance=1e-13).q

    check_gradients(eqx.filter_jit(q), at, sys.links.pos)


def test_bad_input():
    target = Target("tip", jnp.zeros(3))
    with pytest.raises(ValueError, match="neither `pos` nor `rot`"):
        Target("tip")
    swapped = eqx.tree_at(lambda s: s.joints.range, ARM, -ARM.joints.range)
    far = Target("tip", jnp.full(3, jnp.inf))
    usual = {"sys": ARM, "targets": target, "q": START}
    for message, changes in {
        "at least one `Target`": {"targets": ()},
        "no site 'hip'. The robot has: tip": {"targets": Target("hip", jnp.zeros(3))},
        "`q` must be finite": {"q": START.at[0].set(jnp.nan)},
        "pos of tip` must be finite": {"targets": far},
        "`posture` must be positive, got 0.0": {"posture": 0.0},
        "limits of joint 'yaw' are infeasible": {"sys": swapped},
    }.items():
        with pytest.raises(ValueError, match=message):
            inverse_kinematics(**usual | changes)
