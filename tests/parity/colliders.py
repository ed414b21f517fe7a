"""Compare contact points of every pair of shapes with MuJoCo C.

python tests/parity colliders --markdown out/collisions.md
python tests/parity colliders --pairs box-box hfield-mesh --count 1000 --details
"""

import argparse
import pathlib
import re
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from _bench import caption, circumstances, say, table, write
from scipy.spatial.transform import Rotation

import eqsim
from eqsim.testing.component_laws import contact_points

from .derivative_models import shapes
from .separation import true_distance


MARGIN = 0.02
CLOSE = 1e-6
SHARES = {
    "random": 0.25,
    "touching": 0.2,
    "parallel": 0.1,
    "tilted": 0.1,
    "edges": 0.15,
    "stacked": 0.1,
    "deep": 0.1,
}
RIGHT_ANGLES = Rotation.create_group("O")
SIZES = {"SPHERE": 1, "CAPSULE": 2, "CYLINDER": 2, "ELLIPSOID": 3, "BOX": 3}
PRISM = ".1 .1 -.12  -.1 .1 -.12  -.1 -.1 -.12  .1 -.1 -.12"
PRISM += "  .1 .1 .12  -.1 .1 .12  -.1 -.1 .12  .1 -.1 .12"
KIND = mujoco.mjtGeom
EXPLANATION = """\
Each pair of shapes in {count} configurations: in any pose within the bounding spheres
(25 %), with distances between -1 mm and the margin of 20 mm (20 %), with right angles
between the axes (10 %), tilted from there by 1e-6 to 0.1 (10 %), with edges or axes that
cross at 45 degrees (15 %), stacked: equal in size if they can be, with right angles and
positions on a grid of half their size (10 %), and with centers within a tenth of the radius
of the bounding sphere (10 %). Sizes are random, by a factor of 1/3 to 3, but those of meshes,
which are a rock and a box, and of height fields. Double precision, MuJoCo with
`ccd_tolerance` 1e-12.

- `contacts`: contact points of MuJoCo.
- `count`: configurations in which the number of points differs.
- `deepest`: configurations whose smallest distances differ by more than 1e-6, relative to
  distances above 1 m; `eqsim` and `MuJoCo`: among these, in how many the one or the other is
  off the distance that the support functions give, by more than 1e-6.
- `distance`, `position`, `normal`: contact points that differ by more than 1e-6, where the
  number of points is the same, and `median`: the median of the largest of these differences."""


class Configurations(NamedTuple):
    """Coordinates of the second shape, `(n, 7)`, and sizes of both, `(n, 2, 3)`."""

    q: np.ndarray
    size: np.ndarray


def draw(model: mujoco.MjModel, count: int, seed: int) -> Configurations:
    """Draw configurations of all categories."""
    rng = np.random.default_rng(seed)
    parts = [
        _category(model, name, round(share * count), rng)
        for name, share in SHARES.items()
    ]
    return Configurations(*map(np.concatenate, zip(*parts, strict=True)))


def _sizes(model, name: str, count: int, rng) -> np.ndarray:
    """Draw sizes; those of planes, height fields and meshes remain."""
    size = np.tile(model.geom_size[:2], (count, 1, 1))
    for k in range(2):
        used = SIZES.get(_kind(model, k), 0)
        scale = 3.0 ** rng.uniform(-1.0, 1.0, (count, used))
        size[:, k, :used] *= scale
        if name == "stacked" and used:
            size[:, k, :used] = 0.05 * rng.integers(1, 4, (count, used))
    kinds = {_kind(model, k) for k in range(2)}
    if name == "stacked" and len(kinds) == 1:
        size[::2, 1] = size[::2, 0]
    return size


def _kind(model, geom: int) -> str:
    return KIND(model.geom_type[geom]).name.removeprefix("mjGEOM_")


def _radii(model, size: np.ndarray) -> np.ndarray:
    """Compute radii of bounding spheres; 0 for planes."""
    lengths = {
        "SPHERE": lambda x, y, z: x,
        "CAPSULE": lambda x, y, z: x + y,
        "CYLINDER": lambda x, y, z: np.hypot(x, y),
        "ELLIPSOID": lambda x, y, z: np.maximum(np.maximum(x, y), z),
        "BOX": lambda x, y, z: np.sqrt(x * x + y * y + z * z),
    }
    fixed = lambda geom: lambda x, y, z: model.geom_rbound[geom] + 0.0 * x
    columns = (
        lengths.get(_kind(model, k), fixed(k))(*np.moveaxis(size[..., k, :], -1, 0))
        for k in range(2)
    )
    return np.stack(list(columns), axis=-1)


def _category(model, name: str, count: int, rng) -> Configurations:
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    first = Rotation.from_matrix(data.geom_xmat[0].reshape(3, 3))
    size = _sizes(model, name, count, rng)
    radius = _radii(model, size)
    turn = Rotation.random(count, random_state=rng)
    right = RIGHT_ANGLES[rng.integers(24, size=count)]
    if name in ("parallel", "stacked"):
        turn = right
    elif name == "tilted":
        tilt = 10.0 ** rng.uniform(-6, -1, (count, 1))
        turn = right * Rotation.from_rotvec(tilt * rng.normal(size=(count, 3)))
    elif name == "edges":
        angles = np.pi / 4 * rng.integers(0, 8, (count, 2))
        turn = Rotation.from_euler("xz", angles + 0.02 * rng.normal(size=angles.shape))
    reach = 0.1 if name == "deep" else 0.8
    reach = reach * (np.minimum(radius[:, 0], 0.5) + radius[:, 1])[:, None]
    local = rng.uniform(-1.0, 1.0, (count, 3)) * reach
    if _kind(model, 0) in ("PLANE", "HFIELD"):
        low, high = (-0.3, 0.3) if name == "deep" else (-0.3, 1.2)
        local[:, 2] = rng.uniform(low, high, count) * radius[:, 1]
    if name == "stacked":
        local = 0.05 * np.round(local / 0.05)
    # Meshes and their geoms are in frames of their own.
    turn = first * turn * _own(model).inv()
    pos = data.geom_xpos[0] + first.apply(local) - turn.apply(model.geom_pos[1])
    drawn = Configurations(
        np.concatenate([pos, turn.as_quat(scalar_first=True)], axis=1), size
    )
    return _touching(model, drawn, rng) if name == "touching" else drawn


def _own(model) -> Rotation:
    return Rotation.from_quat(model.geom_quat[1], scalar_first=True)


def _touching(model, drawn: Configurations, rng) -> Configurations:
    """Move shapes that overlap until they hardly do; leave those that do not."""
    drawn = Configurations(drawn.q.copy(), drawn.size)
    for each, theirs in zip(drawn.q, contacts(model, drawn), strict=True):
        if len(theirs):
            dist, *_, x, y, z = theirs[np.argmin(theirs[:, 0])]
            gap = rng.uniform(-1e-3, MARGIN)
            each[:3] += (gap - dist) * np.array([x, y, z])
    return drawn


def contacts(model: mujoco.MjModel, drawn: Configurations):
    """Yield distance, position and normal of MuJoCo's contacts, `(ncon, 7)`."""
    data = mujoco.MjData(model)
    radii = _radii(model, drawn.size)
    for q, size, radius in zip(*drawn, radii, strict=True):
        place(model, data, q, size, radius)
        mujoco.mj_collision(model, data)
        now = data.contact
        yield np.c_[now.dist, now.pos, now.frame[:, :3]]


def place(model, data, q, size, radius) -> None:
    """Set poses and sizes."""
    model.geom_size[:2], model.geom_rbound[:2] = size, radius
    data.qpos[:] = q
    mujoco.mj_kinematics(model, data)


class Errors(NamedTuple):
    """Comparison of one pair; see `EXPLANATION`."""

    contacts: int
    count: int
    deepest: int
    off: np.ndarray
    points: np.ndarray


def compare(pair: str, count: int, seed: int, details: bool = False) -> dict[str, Any]:
    """Compare one pair of shapes with MuJoCo."""
    text = shapes()[pair]
    texts = [text]
    if "mesh" in pair:
        prism = re.sub('(name="rock" vertex)="[^"]*"', f'\\1="{PRISM}"', text)
        texts, count = [text, prism], count // 2
    found = [_compared(text, count, seed + k, details) for k, text in enumerate(texts)]
    total = lambda name: int(sum(getattr(each, name) for each in found))
    cell = {"pair": pair} | {x: total(x) for x in ("contacts", "count", "deepest")}
    # The distances from planes and height fields are not computed again.
    off: list[Any] = [None, None]
    if not pair.startswith(("plane", "hfield")):
        off = [int(x) for x in sum(each.off for each in found)]
    cell |= dict(zip(("eqsim", "MuJoCo"), off, strict=True))
    points = np.concatenate([each.points for each in found])
    beyond = np.sum(points > CLOSE, axis=0)
    cell |= dict(zip(("distance", "position", "normal"), beyond.tolist(), strict=True))
    median = float(np.median(points.max(axis=1))) if len(points) else 0.0
    say(f"{pair}: {cell}")
    return cell | {"median": f"{median:.1e}"}


def _compared(text: str, count: int, seed: int, details: bool) -> Errors:
    sys, model = eqsim.load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    drawn = draw(model, count, seed)
    own = points_of(sys, drawn, model.geom_margin.sum())
    total, counts, deepest, off, errors = 0, 0, 0, np.zeros(2, int), []
    data, radii = mujoco.MjData(model), _radii(model, drawn.size)
    for k, theirs in enumerate(contacts(model, drawn)):
        ours, total = own[k], total + len(theirs)
        wrong = len(ours) != len(theirs)
        if len(ours) and len(theirs):
            least = theirs[:, 0].min()
            if abs(ours[:, 0].min() - least) > CLOSE * max(1.0, abs(least)):
                deepest, wrong = deepest + 1, True
                place(model, data, drawn.q[k], drawn.size[k], radii[k])
                off = off + _off(model, data, ours, theirs, details)
        if wrong and details:
            say(f"{k}: {drawn.q[k]} {drawn.size[k]}\n{ours}\n{theirs}")
        if len(ours) != len(theirs):
            counts += 1
        elif len(ours):
            errors.append(matched(ours, theirs))
    points = np.concatenate(errors) if errors else np.zeros((0, 3))
    return Errors(total, counts, deepest, off, points)


def _off(model, data, ours, theirs, details: bool) -> np.ndarray:
    """Return whether eqsim and MuJoCo are off the distance of two shapes."""
    if _kind(model, 0) in ("PLANE", "HFIELD"):
        return np.zeros(2, int)
    normals = np.concatenate([ours, theirs])[:, 4:]
    truth = true_distance(model, data, normals)
    both = np.array([ours[:, 0].min(), theirs[:, 0].min()]) - truth
    if details:
        say(f"off by {both}")
    return (abs(both) > CLOSE).astype(int)


def points_of(sys: eqsim.System, drawn: Configurations, margin: float):
    """Return distance, position and normal of eqsim's points in all configurations."""

    def find(q, size):
        full = sys.geoms.size.at[:2].set(size)
        return contact_points(eqx.tree_at(lambda s: s.geoms.size, sys, full), q)

    many = jax.jit(jax.vmap(find))
    dist, pos, frame, valid = map(np.asarray, many(*map(jnp.asarray, drawn)))
    points = np.concatenate([dist[..., None], pos, frame[:, :, 0]], axis=-1)
    exist = valid & (dist < margin)
    return [x[which] for x, which in zip(points, exist, strict=True)]


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
        cells.append(compare(pair, options.count, options.seed, options.details))
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
    made.add_argument("--details", action="store_true", help="print differences")
    made.add_argument("--markdown", type=pathlib.Path)
    return made.parse_args()
