"""`DomainRandomization`: a different robot in every episode."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import tree_allclose
from toys import push, Rail

import eqsim
from eqsim import randomize
from eqsim.model import Cone
from eqsim.model.changes import with_same_structure
from eqsim.wrappers import AutoReset, DomainRandomization, TimeLimit


COUPLED = """
<mujoco><worldbody><site name="hook"/>
  <body><joint name="a" range="-1 1" actuatorfrcrange="-1 1"/><geom size=".1"/></body>
  <body pos="1 0 0"><joint name="b"/><geom size=".1"/></body></worldbody>
  <tendon><fixed><joint joint="a" coef="1"/></fixed></tendon>
  <equality><joint joint1="a" joint2="b"/></equality>
  <actuator><muscle joint="a" lengthrange="-1 1"/>
    <dcmotor joint="b" motorconst=".5" resistance="2"/></actuator>
  <sensor><jointpos joint="a"/></sensor>
  <keyframe><key name="start"/></keyframe></mujoco>"""
ENV = Rail()
MASSES = randomize.masses(0.5, 2.0)
BOTH = randomize.chain(MASSES, randomize.uniform(lambda s: s.joints.damping, 0.0, 1.0))


def test_only_changes_are_carried():
    env = DomainRandomization(ENV, BOTH)
    state, _ = env.reset(jr.key(0))
    carried = jax.tree_util.tree_leaves_with_path(state.changed)
    names = [jax.tree_util.keystr(path) for path, _ in carried]
    assert names == [".links.mass", ".links.inertia", ".joints.damping"]
    nothing = DomainRandomization(ENV, lambda key, sys: sys)
    assert not jax.tree.leaves(nothing.reset(jr.key(0))[0].changed)
    assert nothing.context(nothing.reset(jr.key(0))[0]).shape == (0,)


def test_is_the_edited_robot():
    """Step by step as the environment with that robot from the beginning."""
    env = DomainRandomization(ENV, BOTH)
    state, first = env.reset(jr.key(1))
    plain = eqx.tree_at(lambda e: e.sys, ENV, env.robot(state))
    other, _ = ENV.reset(jr.key(1))
    inner = plain.begin(state.inner)
    assert tree_allclose(inner[1], first, rtol=1e-14)
    for action in jr.uniform(jr.key(2), (5, 2)):
        state, timestep = env.step(state, action)
        inner = plain.step(inner[0], action)
        assert tree_allclose((state.inner, timestep), inner, rtol=1e-12, atol=1e-14)
        other, _ = ENV.step(other, action)
    assert not np.allclose(other.qd, state.inner.qd, rtol=1e-3)


def test_new_at_every_reset():
    env = AutoReset(TimeLimit(DomainRandomization(ENV, BOTH), 4))
    out = eqsim.rollout(env, push, jr.split(jr.key(0), 5), 24)
    mass = np.asarray(out.state.inner.inner.changed.links.mass)
    assert mass.shape == (5, 24, 2)
    episodes = mass.reshape(5, 6, 4, 2)
    assert np.all(episodes == episodes[:, :, :1])
    assert len(np.unique(episodes[:, :, 0, 0])) == 30
    again = eqsim.rollout(env, push, jr.split(jr.key(0), 5), 24)
    assert np.array_equal(again.state.inner.inner.changed.links.mass, mass)


def test_compiled_once():
    """New keys and new bounds are numbers."""
    run = eqx.filter_jit(lambda env, key: env.reset(key)[0].changed.links.mass)
    for seed in range(3):
        for high in (1.5, 3.0):
            run(DomainRandomization(ENV, randomize.masses(0.5, high)), jr.key(seed))
    assert run._cached._cache_size() == 1


def test_context():
    env = DomainRandomization(ENV, BOTH, observe_context=True)
    state, first = env.reset(jr.key(0))
    context = env.context(state)
    # Two masses, six moments of inertia, two dampings.
    assert context.shape == (10,) and np.array_equal(first.obs[4:], context)
    assert np.array_equal(context[:2], env.robot(state).links.mass)
    other, report = env.reset(jr.key(5), {"context": 2.0 * context})
    assert np.array_equal(env.robot(other).links.mass, 2.0 * context[:2])
    assert np.array_equal(env.robot(other).joints.damping, 2.0 * context[8:])
    assert np.array_equal(report.obs[4:], 2.0 * context)
    _, timestep = env.step(other, jnp.zeros(2))
    assert np.array_equal(timestep.obs[4:], 2.0 * context)
    slope = jax.grad(
        lambda c: (
            env.step(env.reset(jr.key(5), {"context": c})[0], jnp.ones(2))[1].reward
        )
    )(context)
    assert np.all(slope[:2] != 0.0)
    with pytest.raises(ValueError, match=r"options.context.*\(10,\).*\(3,\)"):
        env.reset(jr.key(0), {"context": jnp.zeros(3)})


def test_given_robot():
    env = DomainRandomization(ENV, MASSES)
    heavy = eqx.tree_at(lambda s: s.links.mass, ENV.sys, jnp.array([9.0, 8.0]))
    state, _ = env.reset(jr.key(0), {"sys": heavy})
    assert np.array_equal(env.robot(state).links.mass, [9.0, 8.0])
    damped = eqx.tree_at(lambda s: s.joints.damping, heavy, jnp.ones(2))
    with pytest.raises(ValueError, match=r"`options.sys.joints.damping` differs"):
        env.reset(jr.key(0), {"sys": damped})
    with pytest.raises(ValueError, match="both `sys` and `context`"):
        env.reset(jr.key(0), {"sys": heavy, "context": jnp.zeros(8)})
    for option in ({"sys": heavy}, {"context": jnp.zeros(8)}):
        with pytest.raises(ValueError, match="Wrap it in `eqsim.DomainRandomization`"):
            ENV.reset(jr.key(0), option)


def changed(where, new):
    return lambda key, sys: eqx.tree_at(where, sys, new(where(sys)))


MASS = lambda sys: sys.links.mass


def renamed(key, sys):
    links = dataclasses.replace(sys.links, names=("a", "b"))
    return dataclasses.replace(sys, links=links)


WRONG = {
    r"`sys.links.mass` must keep shape .*got \(1,\)": changed(MASS, lambda x: x[:1]),
    "`sys.links.mass`.*float32": changed(MASS, lambda x: x.astype(jnp.float32)),
    r"different structure \(`sys.links.names`\)": renamed,
    "must be a `System`, got Links": lambda key, sys: sys.links,
    "mass": changed(MASS, lambda x: -x),
    r"low = 2.0 and .*`sys.links.mass`": randomize.uniform(MASS, 2.0, 1.0),
    "randomize": 3,
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_randomizers(message):
    with pytest.raises((ValueError, TypeError), match=message):
        DomainRandomization(ENV, WRONG[message])
    with pytest.raises(ValueError, match="randomize.chain"):
        DomainRandomization(DomainRandomization(ENV, MASSES), BOTH)


PARTS = {
    "cone": Cone.ELLIPTIC,
    "excludes": ((0, 1),),
    "joints.limited": (False, False),
    "joints.force_range": None,
    "actuators.enabled": (True, False),
    "actuators.muscles": None,
    "actuators.motors.owners": (0,),
    "tendons.limited": (True,),
    "equalities.objects": ((1, 0),),
    "sensors.names": ("other",),
    "sites.links": (0,),
    "keyframes.names": ("other",),
}


def test_names_the_field_whose_structure_differs():
    """In all parts of a robot, and in their parts."""
    sys = eqsim.load_mjcf(COUPLED)

    def replaced(part, names, new):
        inner = replaced(vars(part)[names[0]], names[1:], new) if names[1:] else new
        return dataclasses.replace(part, **{names[0]: inner})

    for path, new in PARTS.items():
        with pytest.raises(ValueError, match=rf"different structure \(`sys.{path}`\)"):
            with_same_structure(sys, replaced(sys, path.split("."), new), "`randomize`")


def test_robot_under_jit():
    """A robot as an argument: what it shares with the environment cannot be compared."""
    env = DomainRandomization(ENV, MASSES)
    heavy = eqx.tree_at(lambda s: s.links.mass, ENV.sys, jnp.array([9.0, 8.0]))
    with pytest.raises(ValueError, match="cannot be compared.*tree_at"):
        eqx.filter_jit(env.reset)(jr.key(0), {"sys": heavy})

    @jax.jit
    def reset(mass):
        sys = eqx.tree_at(lambda s: s.links.mass, ENV.sys, mass)
        return env.reset(jr.key(0), {"sys": sys})[0].changed.links.mass

    assert np.array_equal(reset(jnp.array([9.0, 8.0])), [9.0, 8.0])
