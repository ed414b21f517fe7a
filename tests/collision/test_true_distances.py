"""Contacts of shapes that nearly touch: none if they are apart, and none that is deeper than
the overlap."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from parity.separation import separation
from scipy.spatial.transform import Rotation

from eqsim import load_mjcf
from eqsim.testing._collider import contact_points


SIZES = {
    "capsule": ".06 .12",
    "cylinder": ".08 .1",
    "box": ".1 .07 .12",
}
SCENE = """
<mujoco>
  <option ccd_tolerance="1e-12" ccd_iterations="500"/>
  <worldbody>
    <geom type="{}" size="{}"/>
    <body><freejoint/><geom type="{}" size="{}"/></body>
  </worldbody>
</mujoco>"""
COUNT, GAP = 500, 2e-3
CLOSE = 1e-5
"""Largest difference, m. Points of faces have the normal of a face, along which shapes can
overlap more than along that of the single point."""
DIRECTIONS = np.random.default_rng(1).normal(size=(200, 3))
PAIRS = (
    ("box", "box"),
    ("cylinder", "box"),
    ("capsule", "box"),
    ("capsule", "cylinder"),
)


def nearly_touching(model):
    """Poses in which shapes are between -2 mm and 2 mm apart, and their distances."""
    rng, data, found = np.random.default_rng(0), mujoco.MjData(model), []
    nearest = lambda: mujoco.mj_geomDistance(model, data, 0, 1, 10.0, None)
    turns = Rotation.random(COUNT, random_state=rng).as_quat(scalar_first=True)
    for turn, gap in zip(turns, rng.uniform(-GAP, GAP, COUNT), strict=True):
        way = rng.normal(size=3)
        way /= np.linalg.norm(way)
        data.qpos[3:] = turn
        low, high = 0.0, 1.0
        for _ in range(30):
            middle = 0.5 * (low + high)
            data.qpos[:3] = way * middle
            mujoco.mj_kinematics(model, data)
            low, high = (middle, high) if nearest() < gap else (low, middle)
        found.append((data.qpos.copy(), nearest()))
    q, gap = zip(*found)
    return np.array(q), np.array(gap)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.quick_cases("capsule-box", "capsule-cylinder")
def test_shapes_that_nearly_touch(pair):
    one, two = pair
    text = SCENE.format(one, SIZES[one], two, SIZES[two])
    sys, model = load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    q, gap = nearly_touching(model)
    find = jax.jit(jax.vmap(lambda q: contact_points(sys, q)))
    dist, pos, frame, valid = map(np.asarray, find(jnp.asarray(q)))
    assert all(np.all(np.isfinite(x)) for x in (dist, pos, frame))
    exists = valid & (dist < 0.0)
    # None of shapes that are apart, and at least one of others.
    assert not np.any(exists[gap > CLOSE])
    assert np.all(np.any(exists[gap < -CLOSE], axis=1))
    deepest, errors = np.min(np.where(exists, dist, np.inf), axis=1), []
    data = mujoco.MjData(model)
    for k in np.flatnonzero(np.any(exists, axis=1)):
        data.qpos[:] = q[k]
        mujoco.mj_forward(model, data)
        theirs = data.contact.dist
        errors.append(abs(deepest[k] - min(theirs)))
        # No direction separates the shapes more: the depth is not exceeded.
        normals = [*frame[k, exists[k], 0], *(c.frame[:3] for c in data.contact)]
        normals = np.concatenate([normals, DIRECTIONS])
        most = np.max(separation(model, data, (0, 1), normals.T))
        assert deepest[k] > most - CLOSE
        # Halfway between surfaces that nearly touch is near the surface of both.
        for each in pos[k, exists[k]]:
            for geom in range(2):
                turn = data.geom_xmat[geom].reshape(3, 3)
                own = turn.T @ (each - data.geom_xpos[geom])
                assert np.linalg.norm(own) < model.geom_rbound[geom] + GAP
    assert len(errors) > 100 and max(errors) < CLOSE
