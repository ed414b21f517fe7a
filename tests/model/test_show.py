"""`str` of a robot shows its parts with their numbers, and never fails."""

import assets
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from eqsim.io import load_mjcf
from eqsim.testing import random_system


SHOWN = {
    "hopper": (
        "4 links, 6 joints (nq 6, nv 6), 3 actuators (nu 3, na 0), 5 shapes",
        "dt 0.002 s, RK4, gravity (0, 0, -9.81) m/s^2",
        "shape floor: plane",
        "└─ foot  5.316 kg",
        "joint foot_joint: hinge, axis (0, -1, 0), range (-0.7854, 0.7854)",
        "shape foot_geom: capsule (0.06, 0.195)",
        "actuator2: joint foot_joint, gear (200), ctrl (-1, 1)",
    ),
    "humanoid": ("\n  left_hipknee: ", "solver setting"),
    "swimmer": ("medium: density 4000",),
}


@pytest.mark.parametrize("name", SHOWN)
def test_parts(name):
    text = str(load_mjcf(assets.path(name)))
    assert all(words in text for words in SHOWN[name])


def test_contact_exceptions():
    text = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
    <body name="a"><joint/><geom name="g" size=".1"/></body></worldbody>
    <contact><pair geom1="floor" geom2="g"/><exclude body1="world" body2="a"/></contact>
    </mujoco>"""
    shown = str(load_mjcf(text))
    assert "pair floor with g" in shown and "never world with a" in shown


def test_batch():
    """What all have in common is still a number."""
    sys = load_mjcf(assets.path("hopper"))
    masses = jnp.stack([sys.links.mass, 2 * sys.links.mass])
    heavier = lambda mass: eqx.tree_at(lambda s: s.links.mass, sys, mass)
    shown = str(eqx.filter_vmap(heavier)(masses))
    assert "a batch of shape (2,)" in shown and "torso  [2] kg" in shown
    assert "dt 0.002 s" in shown and "capsule (0.05, 0.2)" in shown


def test_tracing():
    texts = []
    show = lambda sys: texts.append(str(sys))
    jax.eval_shape(show, load_mjcf(assets.path("hopper")))
    assert "torso  [] kg" in texts[0] and "gravity [3]" in texts[0]


@pytest.mark.parametrize("seed", range(20))
def test_anything_can_be_shown(seed):
    sys = random_system(seed, nlink=1 + seed % 7, num_roots=1)
    assert all(name in str(sys) for name in (*sys.links.names, *sys.joints.names))
    assert str(eqx.filter_eval_shape(lambda s: s, sys))
    assert str(jax.tree.map(lambda _: None, sys))
