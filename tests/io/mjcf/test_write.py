import assets
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import tree_allclose
from hypothesis import given, strategies as st

from eqsim.io import load_mjcf, write_mjcf
from eqsim.model import Integrator, JointKind
from eqsim.testing import random_system


def without_notes(sys):
    return type(sys)(**{**vars(sys), "notes": ()})


@pytest.mark.parametrize("name", assets.FILES)
def test_round_trip_of_files(name):
    sys = without_notes(load_mjcf(assets.path(name)))
    again = load_mjcf(write_mjcf(sys))
    # Rounding decides which numbers are exactly zero.
    sys, again = sys.without_pattern(), again.without_pattern()
    assert tree_allclose(sys, again, rtol=1e-12, atol=1e-12)


@given(
    seed=st.integers(0, 10_000),
    nlink=st.integers(1, 9),
    fluid=st.booleans(),
    integrator=st.sampled_from(Integrator),
)
def test_round_trip_of_random_systems(seed, nlink, fluid, integrator):
    sys = random_system(
        seed,
        nlink,
        num_roots=1 + seed % nlink,
        with_fluid=fluid,
        integrator=integrator,
    )
    again = load_mjcf(write_mjcf(sys))
    # Rounding decides which numbers are exactly zero.
    sys, again = sys.without_pattern(), again.without_pattern()
    assert tree_allclose(sys, again, rtol=1e-12, atol=1e-12)
    assert hash(jax.tree.structure(sys)) == hash(jax.tree.structure(again))


def test_round_trip_in_single_precision():
    """Rounded moments of inertia still satisfy MuJoCo's triangle inequality."""
    sys = load_mjcf(assets.path("half_cheetah"))
    rounded = jax.tree.map(lambda x: x.astype(jnp.float32), without_notes(sys))
    again = load_mjcf(write_mjcf(rounded))
    assert np.allclose(again.links.inertia, rounded.links.inertia, rtol=1e-6)


def test_names_are_escaped():
    sys = random_system(0, nlink=1, num_roots=1)
    name = 'a<b>&"c" d'
    sys = eqx.tree_at(lambda s: s.links, sys, _named(sys.links, (name,)))
    assert load_mjcf(write_mjcf(sys)).links.names == (name,)


def _named(links, names):
    return type(links)(**{**vars(links), "names": names})


def test_batch_is_rejected():
    sys = jax.tree.map(lambda x: jnp.stack([x, x]), random_system(0))
    with pytest.raises(ValueError, match="takes one robot, but this is a batch"):
        write_mjcf(sys)


def test_tracers_are_rejected():
    def write(sys):
        write_mjcf(sys)
        return 0.0

    with pytest.raises(ValueError, match="outside jit"):
        jax.jit(write)(random_system(0))


def test_unequal_damping_is_rejected():
    sys = random_system(1, joints=(JointKind.SPHERICAL,), with_geoms=False)
    sys = eqx.tree_at(lambda s: s.joints.damping, sys, jnp.arange(1.0 * sys.nv))
    with pytest.raises(ValueError, match="different damping"):
        write_mjcf(sys)


def test_rest_of_a_ball_is_rejected():
    sys = random_system(1, joints=(JointKind.SPHERICAL,), with_geoms=False)
    sys = eqx.tree_at(lambda s: s.joints.spring_ref, sys, -sys.joints.spring_ref)
    with pytest.raises(ValueError, match="which MJCF cannot express"):
        write_mjcf(sys)


def test_breadth_first_links_are_rejected():
    sys = random_system(0, nlink=4, num_roots=1)
    links = type(sys.links)(**{**vars(sys.links), "parents": (-1, 0, 0, 1)})
    with pytest.raises(ValueError, match="depth-first"):
        write_mjcf(eqx.tree_at(lambda s: s.links, sys, links))
