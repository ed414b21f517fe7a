"""Meshes and height fields are read as MuJoCo compiles them, and survive a round trip."""

import equinox as eqx
import jax
import mujoco
import numpy as np
import pytest
import solids
from helpers import tree_allclose

from eqsim import load_mjcf
from eqsim.io import load, save, write_mjcf
from eqsim.model import GeomKind
from eqsim.spatial import quaternion_matrix


def placed(sys, geom):
    """Vertices, or grid points, of a shape in the frame of its link."""
    geoms, data = sys.geoms, sys.geoms.data[geom]
    if geoms.kinds[geom] is GeomKind.MESH:
        parts = sys.meshes.hull(data), sys.meshes.others(data)
        points = np.concatenate([np.asarray(x) for x in parts])
        start = sys.meshes.hulls.span(data)[0] + sys.meshes.surfaces.span(data)[0]
        points = points[sys.meshes.surfaces.order[start : start + len(points)]]
    else:
        grid = np.asarray(sys.height_fields.grid(data))
        x, y, _ = np.asarray(sys.height_fields.size[data])
        rows, columns = grid.shape
        at = np.meshgrid(np.linspace(-x, x, columns), np.linspace(-y, y, rows))
        points = np.stack([*at, grid], -1).reshape(-1, 3)
    quat = np.asarray(geoms.quat[geom])
    rot = np.array(quaternion_matrix((quat / np.linalg.norm(quat)).tolist()), float)
    return points @ rot.reshape(3, 3).T + np.asarray(geoms.pos[geom])


def same_shapes(one, two, atol):
    for geom, kind in enumerate(one.geoms.kinds):
        if kind in (GeomKind.MESH, GeomKind.HFIELD):
            np.testing.assert_allclose(placed(one, geom), placed(two, geom), atol=atol)


def test_vertices_are_those_of_mujoco():
    text = solids.robot()
    sys, model = load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    for mesh in range(model.nmesh):
        start, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_MESH, mesh)
        own = sys.mesh(name).index
        meshes, surfaces = sys.meshes, sys.meshes.surfaces
        points = np.concatenate([meshes.hull(own), meshes.others(own)])
        first = meshes.hulls.span(own)[0] + surfaces.span(own)[0]
        order = surfaces.order[first : first + count]
        assert np.array_equal(points[order], model.mesh_vert[start : start + count])
        faces = model.mesh_face[model.mesh_faceadr[mesh] :][: model.mesh_facenum[mesh]]
        assert np.array_equal(
            points[surfaces.triangles(own)], model.mesh_vert[start + faces]
        )
    np.testing.assert_array_equal(sys.geoms.pos, model.geom_pos)


@pytest.mark.parametrize("inertia", ("legacy", "exact", "convex", "shell"))
def test_round_trip(inertia):
    """The frame of a mesh, which follows from its inertia, is found again."""
    sys = load_mjcf(solids.robot(inertia))
    again = load_mjcf(write_mjcf(sys))
    assert again.geoms.data == sys.geoms.data and again.meshes.names == sys.meshes.names
    assert again.meshes.surfaces == sys.meshes.surfaces
    for part in ("meshes", "height_fields", "links", "geoms"):
        one, two = (eqx.filter(vars(s)[part], eqx.is_array) for s in (sys, again))
        assert tree_allclose(
            jax.tree.leaves(one), jax.tree.leaves(two), rtol=1e-6, atol=1e-6
        )
    same_shapes(sys, again, 1e-6)


def test_hulls_with_few_vertices():
    points = np.random.default_rng(0).normal(size=(60, 3)) * [1, 2, 3]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    part = solids.mesh("stone", points, maxhullvert=12)
    sys = load_mjcf(
        f'<mujoco><asset>{part}</asset><worldbody><geom type="mesh" mesh="stone"/>'
        "</worldbody></mujoco>"
    )
    assert sys.meshes.hull(0).shape == (12, 3) and sys.meshes.others(0).shape == (48, 3)
    assert 'maxhullvert="12"' in write_mjcf(sys)
    assert load_mjcf(write_mjcf(sys)).meshes.hull(0).shape == (12, 3)
    assert "maxhullvert" not in write_mjcf(load_mjcf(solids.robot()))


def test_heights_of_any_sign():
    """MuJoCo's heights begin at zero: the written shape is placed lower instead."""
    sys = load_mjcf(solids.robot())
    for offset in (-0.05, 0.3):
        moved = eqx.tree_at(
            lambda s: s.height_fields.heights, sys, replace_fn=lambda x: x + offset
        )
        again = load_mjcf(write_mjcf(moved))
        same_shapes(moved, again, 1e-6)
        base = again.height_fields.size[0, 2] - again.geoms.pos[0, 2]
        assert float(base) == pytest.approx(0.1 + 1.0, abs=1e-6)
    flat = eqx.tree_at(
        lambda s: s.height_fields.heights, sys, replace_fn=lambda x: 0 * x
    )
    assert np.all(np.asarray(load_mjcf(write_mjcf(flat)).height_fields.heights) == 0)
    low = eqx.tree_at(
        lambda s: s.height_fields.heights, sys, replace_fn=lambda x: x - 1
    )
    with pytest.raises(ValueError, match="lowest height of 'hills'"):
        write_mjcf(low)


def test_saved(tmp_path):
    sys = load_mjcf(solids.robot())
    save(tmp_path / "robot", sys)
    again = load(tmp_path / "robot")
    assert jax.tree.structure(again) == jax.tree.structure(sys)
    assert tree_allclose(sys, again, rtol=0, atol=0)
    fleet = jax.tree.map(lambda *xs: np.stack(xs), sys, sys)
    save(tmp_path / "fleet", fleet)
    assert load(tmp_path / "fleet").meshes.vertices.shape == (
        2,
        *sys.meshes.vertices.shape,
    )


def test_unused_meshes_are_left_out():
    text = solids.robot().replace('mesh="tent"', 'mesh="cube"')
    sys = load_mjcf(text)
    assert sys.meshes.names == ("corner", "cube")
    # A primitive fitted to a mesh is no mesh.
    sys = load_mjcf(
        text.replace('type="mesh" mesh="corner"', 'type="box" mesh="corner"')
    )
    assert sys.meshes.names == ("cube",)
