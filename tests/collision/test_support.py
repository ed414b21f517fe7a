"""The farthest vertex of a hull, by climbing along its edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import eqsim
from eqsim.collision._convex_shapes import Core, Corner
from eqsim.collision._direction_tables import corner_directions
from eqsim.collision.points import hull_tables, Hulls
from eqsim.model import GeomKind
from eqsim.spatial import Vec3, vec3


def hulls(kind):
    """Return a robot with one mesh of many vertices."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    if kind == "slab":
        # Two large polygons with many corners, and vertices within.
        points = np.concatenate([points[:, :2], points[:, :2]])
        height = np.repeat([-0.1, 0.1], 200)
        points = np.column_stack([points, height])
    if kind == "needle":
        points = points * [1.0, 0.01, 0.01]
    text = " ".join(f"{x:.6f}" for x in points.ravel())
    return eqsim.load_mjcf(
        f'<mujoco><asset><mesh name="m" vertex="{text}"/></asset><worldbody><body>'
        '<freejoint/><geom type="mesh" mesh="m"/></body></worldbody></mujoco>'
    )


def support(sys, direction, near=None):
    points, polygons = hull_tables(sys)
    start, end = sys.meshes.hulls.span(0)
    column = lambda number: jnp.array([number], jnp.int32)
    own = Hulls(points, column(start), column(end - start), polygons, column(0))
    core = Core(GeomKind.MESH, vec3(jnp.ones((1, 3))), own)
    corner = core.support(Vec3(*(x[None] for x in direction)), near)
    return corner.number[0]


@pytest.mark.parametrize("kind", ("ball", "slab", "needle"))
@pytest.mark.quick_cases("slab")
def test_farthest(kind):
    """No vertex lies farther than the one that is found, whichever the search begins with."""
    sys = hulls(kind)
    vertices = np.asarray(sys.meshes.vertices)
    assert hull_tables(sys)[1].most_vertices > 24
    directions = np.random.default_rng(1).normal(size=(300, 3))
    corners = corner_directions()[::7]
    directions = np.concatenate([directions, np.eye(3), -np.eye(3), corners])
    heights = directions @ vertices.T
    for first in (None, 0, 5, len(vertices) - 1):
        near = first if first is None else Corner(jnp.array([first], jnp.int32), None)
        search = lambda d, near=near: support(sys, d, near)
        found = np.asarray(jax.jit(jax.vmap(search))(jnp.asarray(directions)))
        own = np.take_along_axis(heights, found[:, None], 1)[:, 0]
        np.testing.assert_allclose(own, heights.max(axis=1), rtol=0, atol=1e-12)


@given(
    st.sampled_from([0.0, np.nan, np.inf, -np.inf, 1e-300, 1e300]), st.integers(0, 2)
)
@pytest.mark.slow
def test_ends(value, axis):
    """Directions that are zero or not finite lead to some vertex."""
    sys = hulls("ball")
    direction = jnp.zeros(3).at[axis].set(value)
    number = int(jax.jit(lambda d: support(sys, d))(direction))
    assert 0 <= number < len(sys.meshes.vertices)
