"""The conformance kit on every pair of shapes, and on wrong colliders."""

import dataclasses

import jax.numpy as jnp
import mujoco
import pytest
from parity.derivative_models import meeting, shapes

from eqsim import load_mjcf
from eqsim.model import Collider, GeomKind
from eqsim.model.pairs import _REGISTRY
from eqsim.testing import check_collider, ConformanceError
from eqsim.testing.component_laws import broadcasts, ColliderKit


def robot(pair, situation):
    text = shapes()[pair]
    return load_mjcf(text), meeting(mujoco.MjModel.from_xml_string(text))[situation][0]


@pytest.mark.parametrize("pair", shapes())
@pytest.mark.quick_cases("capsule-box", "box-box")
def test_batches_that_share(pair):
    """Quick for all pairs: nothing is compiled."""
    sys, q = robot(pair, "touching")
    broadcasts(ColliderKit(sys, jnp.asarray(q)))


@pytest.mark.parametrize("pair", shapes())
@pytest.mark.parametrize("situation", ("apart", "touching", "deep"))
@pytest.mark.quick_cases("touching-capsule-capsule")
def test_pairs(pair, situation):
    sys, q = robot(pair, situation)
    check_collider(sys, jnp.asarray(q))


# By the law that fails: other points of a contact.
WRONG = {
    "separates": lambda p: p._replace(normal=-p.normal),
    "orthonormal": lambda p: p._replace(normal=p.normal * 2.0),
    "rigid": lambda p: p._replace(pos=p.pos._replace(z=p.pos.z * 0.0)),
    "collider_gradients": lambda p: p._replace(dist=jnp.round(p.dist, 9)),
}


@pytest.mark.parametrize("law", WRONG)
@pytest.mark.quick_cases("collider_gradients")
def test_wrong_colliders(law, monkeypatch):
    kinds, change = (GeomKind.SPHERE, GeomKind.SPHERE), WRONG[law]
    old = _REGISTRY[kinds]
    find = lambda one, two: [change(point) for point in old.find(one, two)]
    monkeypatch.setitem(_REGISTRY, kinds, Collider(find, old.num_points))
    sys, q = robot("sphere-sphere", "deep")
    # What is compiled for another robot would not look at the changed collider.
    geoms = dataclasses.replace(sys.geoms, names=(law, "ball"))
    sys = dataclasses.replace(sys, geoms=geoms)
    with pytest.raises(ConformanceError) as error:
        check_collider(sys, jnp.asarray(q))
    assert [*error.value.failures] == [law], error.value


def test_several_pairs():
    text = shapes()["sphere-box"].replace(
        'condim="4"/>', 'condim="4"/><geom size=".1"/>'
    )
    sys = load_mjcf(text)
    with pytest.raises(ValueError, match="2 pairs of shapes"):
        check_collider(sys, jnp.zeros(7))
