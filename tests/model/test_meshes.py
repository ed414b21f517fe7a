"""Meshes and height fields are parameters of a robot; what connects them is static."""

import copy
import dataclasses
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import solids

from eqsim import load_mjcf
from eqsim.io import write_mjcf
from eqsim.model import GeomKind, HullGraph, Meshes, validate
from eqsim.pipelines import inactive_parameters
from eqsim.testing import random_system


@pytest.fixture(scope="module")
def sys():
    return load_mjcf(solids.robot())


def test_polygons_are_merged_and_face_outward(sys):
    """A cube has six squares; every polygon is counterclockwise seen from outside, also
    that of a mirrored mesh."""
    hulls = sys.meshes.hulls
    cube = sys.mesh("cube").index
    assert [len(polygon) for polygon in hulls.polygons(cube)] == [4] * 6
    assert len(hulls.edges(cube)) == 12
    assert [len(around) for around in hulls.vertex_polygons(cube)] == [3] * 8
    for name in ("cube", "tent"):
        mesh = sys.mesh(name).index
        points = np.asarray(sys.meshes.hull(mesh))
        polygons = hulls.polygons(mesh)
        edges = hulls.edges(mesh)
        assert len(points) - len(edges) + len(polygons) == 2  # Euler
        for polygon in polygons:
            corners = points[polygon]
            normal = np.cross(corners[1] - corners[0], corners[2] - corners[1])
            assert np.all((points - corners[0]) @ normal < 1e-8)
        for vertex, around in enumerate(hulls.neighborhoods(mesh)):
            own = {
                b if a == vertex else a for a, b in edges.tolist() if vertex in (a, b)
            }
            assert own <= set(around.tolist())


def test_every_vertex_is_stored_once(sys):
    meshes = sys.meshes
    for mesh in range(sys.nmesh):
        hull, others = np.asarray(meshes.hull(mesh)), np.asarray(meshes.others(mesh))
        points = np.concatenate([hull, others])
        assert len(np.unique(points.round(9), axis=0)) == len(points)
        faces = meshes.surfaces.triangles(mesh)
        assert set(faces.ravel().tolist()) == set(range(len(points)))
    # A mesh that touches nothing has no hull.
    assert meshes.hull(sys.mesh("corner").index).shape == (0, 3)
    assert meshes.others(sys.mesh("corner").index).shape == (12, 3)
    assert meshes.hull(sys.mesh("cube").index).shape == (8, 3)


def test_scaled_meshes_and_new_terrain_are_not_compiled_again(sys):
    traced = []

    @eqx.filter_jit
    def program(sys):
        traced.append(None)
        return jnp.sum(sys.meshes.vertices) + jnp.sum(sys.height_fields.heights)

    where = lambda s: (s.meshes.vertices, s.height_fields.heights)
    for factor in (1.0, 2.0):
        program(eqx.tree_at(where, sys, replace_fn=lambda x: factor * x))
    program(load_mjcf(solids.robot()))
    assert len(traced) == 1


def test_connectivity_is_compared_by_content(sys):
    again = load_mjcf(solids.robot())
    one, two = sys.meshes.hulls, again.meshes.hulls
    assert one is not two and one == two and hash(one) == hash(two)
    other = dataclasses.replace(one, corners=one.corners[::-1])
    assert one != other and one != HullGraph.none()
    assert jax.tree.structure(sys) == jax.tree.structure(again)
    assert Meshes.none().hulls is Meshes.none().hulls
    with pytest.raises(ValueError):
        one.corners[0] = 7
    for copied in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert copied == one and hash(copied) == hash(one)


@pytest.mark.parametrize("seed", range(4))
def test_random_systems(seed):
    """Other parts of a robot do not depend on whether it has meshes."""
    one = random_system(seed, 8, with_meshes=True, with_sensors=True)
    other = random_system(seed, 8, with_sensors=True)
    validate(one)
    assert np.array_equal(one.links.mass, other.links.mass)
    count = one.geoms.kinds.count
    boxes = other.geoms.kinds.count(GeomKind.BOX)
    assert count(GeomKind.MESH) + count(GeomKind.HFIELD) + count(GeomKind.BOX) == boxes
    again = load_mjcf(write_mjcf(one))
    for mesh in range(one.nmesh):
        for own, read in zip(
            one.meshes.hulls.neighborhoods(mesh), again.meshes.hulls.neighborhoods(mesh)
        ):
            assert set(own) == set(read)
        polygons = lambda sys: {frozenset(p) for p in sys.meshes.hulls.polygons(mesh)}
        assert polygons(one) == polygons(again)
    for name in ("meshes", "height_fields"):
        pair = (eqx.filter(vars(s)[name], eqx.is_array) for s in (one, again))
        for x, y in zip(*map(jax.tree.leaves, pair), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-7)
    np.testing.assert_allclose(one.geoms.pos, again.geoms.pos, atol=1e-7)


def test_names(sys):
    cube = sys.mesh("cube")
    assert sys.meshes.vertices[cube.vertices].shape == (8, 3)
    assert sys.meshes.other_vertices[cube.other_vertices].shape == (0, 3)
    hills = sys.height_field("hills")
    assert hills.shape == (5, 7) and sys.nfield == 1
    grid = sys.height_fields.heights[hills.heights].reshape(5, 7)
    # The first row of MJCF is the last one along y; MuJoCo maps heights to 0 ... 1.
    wanted = solids.HILLS[::-1] - solids.HILLS.min()
    np.testing.assert_allclose(grid, 0.4 * wanted / wanted.max(), atol=1e-6)
    assert np.array_equal(grid, sys.height_fields.grid(0))
    geoms = sys.geoms
    assert geoms.data[sys.geom("one").index] == sys.mesh("corner").index
    assert geoms.data[sys.geom("ball").index] == -1
    assert geoms.kinds[sys.geom("ground").index] is GeomKind.HFIELD
    with pytest.raises(ValueError, match="no mesh 'cub'. Did you mean 'cube'"):
        sys.mesh("cub")
    with pytest.raises(ValueError, match="this robot has no meshes"):
        random_system(0).mesh("cube")


def test_text(sys):
    text = str(sys)
    assert "3 meshes, 1 height field" in text
    assert "four: mesh cube (12 triangles, 8 vertices of its hull)" in text
    assert "ground: hfield hills (5 x 7)" in text
    shown = load_mjcf(
        "<mujoco><asset><mesh name='m' vertex='0 0 0 1 0 0 0 1 0 0 0 1'/></asset>"
        "<worldbody><body><joint/><geom size='1'/><geom type='mesh' mesh='m' "
        "contype='0' conaffinity='0'/></body></worldbody></mujoco>"
    )
    assert "mesh m (4 triangles)" in str(shown)  # Without contacts, no hull is kept.


def test_wrong_values(sys):
    def with_other(where, change):
        return lambda: validate(eqx.tree_at(where, sys, replace_fn=change))

    def with_fields(part, **fields):
        return lambda: dataclasses.replace(part, **fields)

    fields, meshes = (lambda s: s.height_fields), (lambda s: s.meshes)
    for message, call in {
        "'hills' has a height of -0.2 m.*bottom.*-0.1": with_other(
            lambda s: fields(s).heights, lambda x: x - 0.2
        ),
        "'hills' has size": with_other(lambda s: fields(s).size, lambda x: 0 * x),
        "vertices has shape": with_other(
            lambda s: meshes(s).vertices, lambda x: x[:-1]
        ),
        "'ground' is a hfield, but Geoms.data": with_fields(sys.geoms, data=()),
        "one name per mesh": with_fields(sys.meshes, names=("a",)),
        "'hills' has 5 rows and 1 columns": with_fields(fields(sys), columns=(1,)),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def test_shapes_that_touch_nothing_have_inactive_parameters(sys):
    found = inactive_parameters(sys)
    for path in ("vertices", "other_vertices"):
        assert "all of it" in found.reasons[f"meshes.{path}"]
    assert "all of it" in found.reasons["height_fields.heights"]
    assert np.all(found.mask.height_fields.size)
