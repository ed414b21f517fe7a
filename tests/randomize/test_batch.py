"""A fixed batch of robots: shared parameters have no batch axis."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from toys import rails

import eqsim
from eqsim import randomize
from eqsim.envs import PointMass


ENV = PointMass(sys=rails(1))
DRAW = randomize.chain(
    randomize.masses(0.5, 2.0),
    randomize.uniform_factor(lambda sys: sys.joints.damping, 0.5, 2.0),
)
KEYS = jr.split(jr.key(0), 5)
POLICY = lambda obs, key: jr.uniform(key, (ENV.sys.nu,), minval=-1.0)


def test_each_robot_is_drawn_with_its_key():
    robots, _ = randomize.batched_env(ENV, DRAW, KEYS)
    each = [DRAW(key, ENV.sys) for key in KEYS]
    expected = np.stack([sys.links.mass for sys in each])
    np.testing.assert_array_equal(robots.sys.links.mass, expected)


def test_shared_parameters_have_no_batch_axis():
    robots, axes = randomize.batched_env(ENV, DRAW, KEYS)
    drawn = {"links.mass", "links.inertia", "joints.damping"}
    leaves = jax.tree_util.tree_leaves_with_path(ENV.sys)
    pairs = zip(leaves, jax.tree_util.tree_leaves(robots.sys), strict=True)
    batched = {jax.tree_util.keystr(p)[1:] for (p, x), y in pairs if x.shape != y.shape}
    assert batched == drawn
    found = jax.tree_util.tree_leaves_with_path(axes)
    assert {jax.tree_util.keystr(p)[5:] for p, axis in found if axis == 0} == drawn


def test_rollout_equals_rollouts_of_each_robot():
    robots, axes = randomize.batched_env(ENV, DRAW, KEYS)
    seen = eqsim.rollout(robots, POLICY, KEYS, 10, env_axes=axes)
    one = eqx.tree_at(lambda env: env.sys, ENV, DRAW(KEYS[3], ENV.sys))
    alone = eqsim.rollout(one, POLICY, KEYS[3], 10)
    np.testing.assert_allclose(seen.obs[3], alone.obs, rtol=1e-10, atol=1e-12)


def test_gradients_pass_through_the_draw():
    def mass(low):
        robots, _ = randomize.batched_env(ENV, randomize.masses(low, 2.0), KEYS)
        return jnp.sum(robots.sys.links.mass)

    low, h = jnp.array(0.5), 1e-4
    central = (mass(low + h) - mass(low - h)) / (2 * h)
    np.testing.assert_allclose(jax.grad(mass)(low), central, rtol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match="returns the robot unchanged"):
        randomize.batched_env(ENV, lambda key, sys: sys, KEYS)
    with pytest.raises(ValueError, match="a different structure"):
        randomize.batched_env(ENV, lambda key, sys: rails(2), KEYS)
