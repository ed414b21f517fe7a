"""Compare contact points of every pair of shapes with MuJoCo C.

python benchmarks/collisions.py --markdown out/collisions.md
python benchmarks/collisions.py --pairs box-box hfield-mesh --count 1000
"""

import argparse
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from _command import say
from _derivative_models import shapes
from _tables import caption, circumstances, table, write
from scipy.spatial.transform import Rotation

import eqsim
from eqsim.testing._collider import contact_points


MARGIN = 0.02
CLOSE = 1e-6
SHARES = {
    "random": 0.4,
    "touching": 0.2,
    "parallel": 0.15,
    "tilted": 0.1,
    "edges": 0.15,
}
RIGHT_ANGLES = Rotation.create_group("O")
EXPLANATION = """\
Each pair of shapes in {count} configurations: in any pose within the bounding spheres
(40 %), with distances between -1 mm and the margin of 20 mm (20 %), with right angles
between the axes (15 %), tilted from there by 1e-6 to 0.1 (10 %), and with edges or axes that
cross at 45 degrees (15 %); double precision, MuJoCo with `ccd_tolerance` 1e-12.

- `contacts`: contact points of MuJoCo.
- `count`: configurations in which the number of points differs.
- `deepest`: configurations whose smallest distances differ by more than 1e-6, relative to
  distances above 1 m.
- `distance`, `position`, `normal`: contact points that differ by more than 1e-6, where the
  number of points is the same, and `median`: the median of the largest of these differences."""


def draw(model: mujoco.MjModel, count: int, seed: int) -> np.ndarray:
    """Draw coordinates of all categories, `(count, 7)`."""
    rng = np.random.default_rng(seed)
    parts = [
        _category(model, name, round(share * count), rng)
        for name, share in SHARES.items()
    ]
    return np.concatenate(parts)


def _category(model, name: str, count: int, rng) -> np.ndarray:
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    first = Rotation.from_matrix(data.geom_xmat[0].reshape(3, 3))
    radius = [model.geom_rbound[k] or 0.5 for k in range(2)]
    turn = Rotation.random(count, random_state=rng)
    right = RIGHT_ANGLES[rng.integers(24, size=count)]
    if name == "parallel":
        turn = right
    elif name == "tilted":
        tilt = 10.0 ** rng.uniform(-6, -1, (count, 1))
        turn = right * Rotation.from_rotvec(tilt * rng.normal(size=(count, 3)))
    elif name == "edges":
        angles = np.pi / 4 * rng.integers(0, 8, (count, 2))
        turn = Rotation.from_euler("xz", angles + 0.02 * rng.normal(size=angles.shape))
    reach = 0.8 * (min(radius[0], 0.5) + radius[1])
    local = rng.uniform(-reach, reach, (count, 3))
    if model.geom_type[0] in (
        mujoco.mjtGeom.mjGEOM_PLANE,
        mujoco.mjtGeom.mjGEOM_HFIELD,
    ):
        local[:, 2] = rng.uniform(-0.3, 1.2, count) * radius[1]
    pos = data.geom_xpos[0] + first.apply(local)
    q = np.concatenate([pos, (first * turn).as_quat(scalar_first=True)], axis=1)
    return _touching(model, q, rng) if name == "touching" else q


def _touching(model, q: np.ndarray, rng) -> np.ndarray:
    """Move shapes that overlap until they hardly do; leave those that do not."""
    q = q.copy()
    for each, theirs in zip(q, contacts(model, q), strict=True):
        if len(theirs):
            dist, *_, x, y, z = theirs[np.argmin(theirs[:, 0])]
            gap = rng.uniform(-1e-3, MARGIN)
            each[:3] += (gap - dist) * np.array([x, y, z])
    return q


def contacts(model: mujoco.MjModel, q: np.ndarray):
    """Yield distance, position and normal of MuJoCo's contacts, `(ncon, 7)`."""
    data = mujoco.MjData(model)
    for each in q:
        data.qpos[:] = each
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        now = data.contact
        yield np.c_[now.dist, now.pos, now.frame[:, :3]]


def compare(pair: str, count: int, seed: int) -> dict[str, Any]:
    """Compare one pair of shapes with MuJoCo."""
    text = shapes()[pair]
    sys, model = eqsim.load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    q = draw(model, count, seed)
    many = jax.jit(jax.vmap(lambda q: contact_points(sys, q)))
    dist, pos, frame, valid = map(np.asarray, many(jnp.asarray(q)))
    own = np.concatenate([dist[..., None], pos, frame[:, :, 0]], axis=-1)
    margin = model.geom_margin.sum()
    valid = valid & (dist < margin)
    total, counts, deepest, errors = 0, 0, 0, []
    for k, theirs in enumerate(contacts(model, q)):
        ours, total = own[k][valid[k]], total + len(theirs)
        if len(ours) and len(theirs):
            least = theirs[:, 0].min()
            deepest += abs(ours[:, 0].min() - least) > CLOSE * max(1.0, abs(least))
        if len(ours) != len(theirs):
            counts += 1
        elif len(ours):
            errors.append(matched(ours, theirs))
    found = np.concatenate(errors) if errors else np.zeros((0, 3))
    beyond = np.sum(found > CLOSE, axis=0)
    cell = {"pair": pair, "contacts": total, "count": counts, "deepest": int(deepest)}
    cell |= dict(zip(("distance", "position", "normal"), beyond.tolist(), strict=True))
    median = float(np.median(found.max(axis=1))) if len(found) else 0.0
    say(f"{pair}: {cell}")
    return cell | {"median": f"{median:.1e}"}


def matched(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return differences of distance, position and normal of corresponding points,
    `(ncon, 3)`."""
    left, rows = list(range(len(ours))), []
    for point in theirs:
        apart = [np.abs(ours[k] - point).max() for k in left]
        error = np.abs(ours[left.pop(int(np.argmin(apart)))] - point)
        rows.append([error[0], error[1:4].max(), error[4:].max()])
    return np.array(rows)


def main() -> None:
    """Compare all pairs, and write the table after each."""
    options = _options()
    jax.config.update("jax_enable_x64", True)
    cells: list[dict] = []
    for pair in options.pairs or shapes():
        cells.append(compare(pair, options.count, options.seed))
        text = EXPLANATION.format(count=f"{options.count:,}")
        content = f"{text}\n\n{table(cells)}\n\n{caption(circumstances())}\n"
        write(options.markdown, content)
    print(content)


def _options() -> argparse.Namespace:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--pairs", nargs="*", choices=list(shapes()))
    made.add_argument("--count", type=int, default=10_000)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--markdown", type=pathlib.Path)
    return made.parse_args()


if __name__ == "__main__":
    main()
