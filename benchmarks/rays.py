"""Rays per second: height scans and oblique rays on terrain.

python benchmarks/rays.py --out out/bench
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _bench import caption, interleaved, parser, publish, say, setting, table

import eqsim
from eqsim.io import with_height_field
from eqsim.sensors import cast_rays, height_scan
from eqsim.terrain import ground_height, Rough, with_terrain


EXPLANATION = """\
Millions of rays per second on rough terrain of {points} x {points} grid points, {cell} m
apart: {envs} robots with {rays} rays each, which share the terrain. `ground_height`: heights
at points of the world. `height_scan`: vertical rays about a link, with its kinematics.
`cast_rays`: rays 30 degrees below the horizontal, from 1 m above the ground. `own terrain`:
each robot has heights of its own. `gradient`: value and gradient by coordinates, in
reverse mode. `spread`: how much slower than the best the median is."""
ROBOT = """
<mujoco><worldbody><geom name="floor" type="plane" size="0 0 1"/>
  <body name="base"><freejoint/><geom size=".1" mass="1"/></body></worldbody></mujoco>"""


def main() -> None:
    """Time all kinds of rays, and write the table."""
    options = _options()
    where = setting(options)
    taken = interleaved(_calls(options), options.repeats, options.limit)
    count = options.envs * options.rays
    rows: list[dict[str, Any]] = []
    for name, timing in taken.items():
        number = options.own * options.rays if "own" in name else count
        rate = number / timing.best / 1e6
        rows.append({"rays": name, "M/s": rate, "spread": timing.spread})
        say(rows[-1])
    text = report(where, rows, options)
    publish(options, "rays", {"where": where, "rows": rows}, text)
    print(text)


def _calls(options) -> dict[str, Any]:
    """Return a call for every row of the table."""
    points, length = options.points, (options.points - 1) * options.cell
    spec = with_height_field(ROBOT, points, points, size=(length, length))
    terrain = Rough()(jr.key(0), 1.0, (points, points), options.cell)
    sys = with_terrain(eqsim.load_mjcf(spec), terrain)
    keys = jr.split(jr.key(1), 4)
    near = 0.4 * length
    qs = jr.uniform(keys[0], (options.envs, 7), minval=-near, maxval=near)
    qs = qs.at[:, 2].set(1.0)
    pattern = jr.uniform(keys[1], (options.rays, 2), minval=-0.8, maxval=0.8)
    angle = jr.uniform(keys[2], (options.rays,), maxval=2.0 * np.pi)
    low = jnp.full_like(angle, np.tan(np.radians(-30.0)))
    oblique = jnp.stack([jnp.cos(angle), jnp.sin(angle), low], axis=-1)
    x, y = qs[:, None, :2].transpose(2, 0, 1) + pattern.T[:, None]

    def scan(sys, q):
        return height_scan(sys, q, "base", pattern)

    def cast(sys, q):
        start = jnp.zeros((1, 3))
        return cast_rays(sys, q, start, oblique, link="base", yaw_only=True).distance

    def own_of(ray):
        put = lambda h: eqx.tree_at(lambda s: s.height_fields.heights, sys, h)
        return eqx.filter_jit(jax.vmap(lambda h, q: ray(put(h), q)))

    every = lambda ray: eqx.filter_jit(jax.vmap(ray, in_axes=(None, 0)))
    slope = lambda ray: every(
        jax.value_and_grad(lambda s, q: ray(s, q).sum(), argnums=1)
    )
    heights = sys.height_fields.heights * jnp.ones((options.own, 1))
    own = {scan: own_of(scan), cast: own_of(cast)}
    shared = {k: every(k) for k in (scan, cast)}
    slopes = {k: slope(k) for k in (scan, cast)}
    ground = eqx.filter_jit(ground_height)
    calls = {"ground_height": lambda: ground(sys, x, y)}
    for name, ray in (("height_scan", scan), ("cast_rays", cast)):
        calls[name] = lambda ray=ray: shared[ray](sys, qs)
        calls[f"{name}, own terrain"] = lambda ray=ray: own[ray](
            heights, qs[: options.own]
        )
        calls[f"{name}, gradient"] = lambda ray=ray: slopes[ray](sys, qs)
    return calls


def report(where: dict, rows: list[dict], options) -> str:
    """Return all results as one table."""
    text = EXPLANATION.format(**vars(options))
    return f"## Rays\n\n{text}\n\n{table(rows)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=9, limit=60.0)
    add = made.add_argument
    add("--points", type=int, default=100, help="grid points along each side")
    add("--cell", type=float, default=0.1, help="distance of grid points, m")
    add("--envs", type=int, default=4096, help="robots that share the terrain")
    add("--own", type=int, default=1024, help="robots with terrain of their own")
    add("--rays", type=int, default=187, help="rays of each robot")
    return made.parse_args()


if __name__ == "__main__":
    main()
