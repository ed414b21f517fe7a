"""Animations and images of the gallery, as WebP files.

    python docs/examples/gallery.py --out docs/images/gallery
    python docs/examples/gallery.py --only meshes --out out/gallery

The ant, G1 and H1 need trained agents. If there is no run in the folder `--runs`, the agent is
trained first: `eqsim train ppo ant`, about 8 minutes on two cores, and `eqsim train ppo
g1_velocity` and `h1_velocity_rough`, less than 30 each, which need eqsim-locomotion and
MuJoCo Menagerie, as the backflip does.
"""

import argparse
import io
import os
import pathlib
from collections.abc import Callable, Sequence

import equinox as eqx
import g1_flip
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from PIL import Image, ImageDraw

import eqsim
import eqsim_zoo
from eqsim import control, identify
from eqsim.render import Camera, images


LIMIT = 300_000
"""Maximum size of a file, bytes."""
ROBOTS = (
    *("ant", "half_cheetah", "hopper", "walker2d"),
    *("humanoid", "swimmer", "pusher", "inverted_double_pendulum"),
)
PENDULUM = """
<mujoco>
  <option timestep="0.05"/>
  <worldbody><body><joint name="hinge" axis="0 -1 0" damping="0.01"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".03" mass="1"/>
    <geom type="sphere" pos="0 0 -.5" size=".07" mass="0"/></body></worldbody>
  <actuator><motor joint="hinge" ctrlrange="-1.5 1.5"/></actuator>
</mujoco>"""
ROD = """
<mujoco>
  <option timestep="0.01" integrator="implicitfast"><flag contact="disable"/></option>
  <worldbody><body><joint axis="0 -1 0" damping="{damping}"/>
    <inertial mass="0.7" pos="0 0 {height}" diaginertia="0.02 0.02 0.001"/>
  </body></worldbody>
</mujoco>"""


def write(path: pathlib.Path, frames: Sequence[Image.Image], dt: float = 0.05) -> None:
    """Write an image, or a looping animation with `dt` seconds between frames.

    **Raises:** `ValueError` if the file is larger than `LIMIT`.
    """
    more = {"save_all": True, "append_images": frames[1:], "duration": round(1000 * dt)}
    options = {"quality": 60, "method": 6} | (more | {"loop": 0} if frames[1:] else {})
    out = io.BytesIO()
    frames[0].save(out, format="WEBP", **options)
    size = len(out.getvalue())
    if size > LIMIT:
        raise ValueError(f"{path.name} has {size:,} bytes; at most {LIMIT:,}.")
    path.write_bytes(out.getvalue())
    print(f"{path}: {len(frames)} frames, {size:,} bytes")


def pictures(sys, q, camera: Camera | None = None, size=(320, 240)) -> list:
    """Draw states as Pillow images."""
    found = images(sys, jnp.asarray(q), camera, width=size[0], height=size[1])
    return [Image.fromarray(x) for x in np.asarray(found)]


def robots(path: pathlib.Path, runs: pathlib.Path) -> None:
    """Gymnasium's robots in their initial states."""
    width, height, columns = 240, 180, 4
    sheet = Image.new("RGB", (width * columns, height * (len(ROBOTS) // columns)))
    for number, name in enumerate(ROBOTS):
        env = eqsim.make(name)
        state, _ = eqx.filter_jit(env.reset)(jr.key(0))
        (image,) = pictures(env.sys, env.physics(state).q[None], size=(width, height))
        ImageDraw.Draw(image).text((8, 6), name, fill=(30, 30, 30), font_size=14)
        sheet.paste(image, (number % columns * width, number // columns * height))
    write(path, [sheet])


def trained(runs: pathlib.Path, name: str):
    """Return an environment and the policy that PPO learned there."""
    run = runs / f"ppo-{name}"
    if not (run / "last.ckpt").exists():
        preset = eqsim_zoo.runs.find_preset("ppo", name)
        assert preset is not None
        eqsim_zoo.train(preset, out=run, progress=True)
    result = eqsim_zoo.load_run(run, best=(run / "best.ckpt").exists())
    return result.environment(), eqsim.agent_policy(*result.member(0))


def g1(path: pathlib.Path, runs: pathlib.Path) -> None:
    """Unitree G1, which PPO trained to follow velocity commands."""
    env, policy = trained(runs, "g1_velocity")
    low = jnp.array([0.7, 0.0, 0.3])
    env = eqx.tree_at(lambda e: (e.commands.low, e.commands.high), env, (low, low))
    env = eqx.tree_at(lambda e: e.commands.zero, env, jnp.zeros(3))
    states = eqsim.rollout(env, policy, jr.key(1), 200).state
    q = env.physics(states).q[50::2]
    camera = Camera((0.0, 0.0, 0.75), 3.0, 120.0, -15.0, follow="pelvis")
    write(path, pictures(env.sys, q, camera, (280, 280)), 2 * float(env.dt))


def h1(path: pathlib.Path, runs: pathlib.Path) -> None:
    """Unitree H1, which PPO trained on rough terrain, climbs stairs of 10 cm."""
    env, policy = trained(runs, "h1_velocity_rough")
    ahead = jnp.array([0.8, 0.0, 0.0])
    where = lambda e: (e.env.commands.low, e.env.commands.high)
    env = eqx.tree_at(where, env, (ahead, ahead))
    env = eqx.tree_at(lambda e: e.env.commands.zero, env, jnp.zeros(3))
    env = eqx.tree_at(lambda e: e.env.commands.standing, env, jnp.zeros(()))
    # A pit of stairs, on the fourth of six levels.
    start = env.reset(jr.key(4), {"patch": jnp.array([3, 1])})
    states = eqsim.rollout(env, policy, jr.key(3), 300, start=start).state
    q = env.physics(states).q[20::3]
    camera = Camera((0.0, 0.0, 0.9), 4.5, 130.0, -20.0, follow="pelvis")
    write(path, pictures(env.sys, q, camera, (280, 280)), 3 * float(env.dt))


def flip(path: pathlib.Path, runs: pathlib.Path) -> None:
    """Unitree G1 does a backflip."""
    scene = pathlib.Path(os.environ["EQSIM_MENAGERIE"]) / "unitree_g1" / "scene.xml"
    robot, states, _ = g1_flip.flip(str(scene))
    camera = Camera((-0.1, 0.0, 0.8), 3.4, 90.0, -8.0)
    write(path, pictures(robot, states.q[10:115:2], camera, (280, 280)), 0.06)


def ant(path: pathlib.Path, runs: pathlib.Path) -> None:
    """An ant that PPO trained to run."""
    env, policy = trained(runs, "ant")
    states = eqsim.rollout(env, policy, jr.key(0), 140).state
    q = env.physics(states).q[40:]
    camera = Camera((0.0, 0.0, 0.5), 3.5, 60.0, -20.0, follow="torso")
    write(path, pictures(env.sys, q, camera), float(env.dt))


def meshes(path: pathlib.Path, runs: pathlib.Path) -> None:
    """Convex meshes that fall onto a terrain."""
    rng = np.random.default_rng(1)
    assets, bodies = (
        ['<hfield name="hills" nrow="24" ncol="24" size="1.2 1.2 1 .2"/>'],
        [],
    )
    for k in range(9):
        points = rng.normal(size=(14, 3))
        points *= rng.uniform(0.1, 0.17) / np.linalg.norm(points, axis=1, keepdims=True)
        text = " ".join(f"{x:.4f}" for x in points.ravel())
        assets.append(f'<mesh name="stone{k}" vertex="{text}"/>')
        place = f"{0.3 * (k % 3 - 1):.2f} {0.3 * (k // 3 - 1):.2f} {0.7 + 0.12 * k:.2f}"
        bodies.append(
            f'<body pos="{place}"><freejoint/><geom type="mesh" mesh="stone{k}"/></body>'
        )
    sys = eqsim.load_mjcf(
        f"""<mujoco><option timestep="0.005"/><asset>{"".join(assets)}</asset><worldbody>
        <geom type="hfield" hfield="hills"/>{"".join(bodies)}</worldbody></mujoco>"""
    )
    x, y = np.meshgrid(np.linspace(-1.2, 1.2, 24), np.linspace(-1.2, 1.2, 24))
    heights = 0.25 * (x**2 + y**2) + 0.05 * np.sin(5 * x) * np.cos(4 * y)
    sys = eqx.tree_at(
        lambda s: s.height_fields.heights,
        sys,
        jnp.asarray(heights.ravel() - heights.min(), jnp.float32),
    )
    pipeline = eqsim.Generalized()

    @eqx.filter_jit
    def simulate(state):
        step = lambda s, _: (pipeline.step(sys, s, jnp.zeros(0)), s.q)
        return eqsim.scan(step, state, jnp.zeros(500))[1]

    q = simulate(pipeline.init(sys))[::8]
    write(path, pictures(sys, q, Camera((0, 0, 0.25), 2.6, 70, -28)), 0.04)


def swing_up(path: pathlib.Path, runs: pathlib.Path) -> None:
    """A swing-up found by iterative LQR."""
    sys, pipeline = eqsim.load_mjcf(PENDULUM), eqsim.Generalized()
    upright = pipeline.init(sys, jnp.array([jnp.pi]))
    cost = control.QuadraticCost(upright, 0.01, 1.0, 100.0)
    problem = control.ControlProblem((pipeline, sys), cost, horizon=60)
    guess = 0.1 * jnp.ones((60, 1))
    plan = control.ILQR(max_steps=200).solve(problem, pipeline.init(sys), guess=guess)
    q = jnp.concatenate([plan.states.q, jnp.repeat(plan.states.q[-1:], 15, axis=0)])
    write(path, pictures(sys, q, Camera((0, 0, 0), 1.8, 90, 0), (240, 240)), 0.05)


def identification(path: pathlib.Path, runs: pathlib.Path) -> None:
    """Simulations of a pendulum with the parameters of each step of a fit."""
    with jax.enable_x64(True):
        time = np.arange(0.0, 4.0, 0.01)
        guess = eqsim.load_mjcf(ROD.format(damping=0.01, height=-0.2))
        angle = _swing(eqsim.load_mjcf(ROD.format(damping=0.05, height=-0.35)))
        noisy = angle + np.random.default_rng(0).normal(0.0, 0.03, angle.shape)
        data = identify.Recording(time, np.zeros((400, 0)), {"q": noisy}, "pendulum")
        unknowns = {
            "damping": identify.Positive(lambda s: s.joints.damping),
            "height": identify.Unbounded(lambda s: s.links.com, entries=((0, 2),)),
        }
        fits = [guess]
        windows = identify.Windows(4.0)
        identify.fit(guess, [data], unknowns, windows=windows, accepted=fits.append)
        # The first steps only change the initial state, which the title does not show.
        values = [
            (float(sys.joints.damping[0]), float(sys.links.com[0, 2])) for sys in fits
        ]
        curves = {v: _swing(sys) for v, sys in zip(values, fits, strict=True)}
    title = "damping {:.3f} N m s, center of mass {:.3f} m"
    frames = [_plot(time, noisy, c, title.format(*v)) for v, c in curves.items()]
    write(path, frames + 2 * frames[-1:], 0.8)


def _swing(sys) -> np.ndarray:
    pipeline = eqsim.Generalized()
    step = lambda state, u: (pipeline.step(sys, state, u), state.q)
    start = pipeline.init(sys, jnp.array([2.0]))
    return np.asarray(eqsim.scan(step, start, jnp.zeros((400, 0)))[1])


def _plot(time, measured, simulated, title: str) -> Image.Image:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 2.7), dpi=100, layout="constrained")
    canvas, axes = FigureCanvasAgg(figure), figure.add_subplot()
    axes.plot(time[::4], measured[::4], ".", color="0.6", ms=4, label="measured")
    axes.plot(time, simulated, color="#b8392f", lw=1.5, label="simulated")
    axes.set(xlabel="time, s", ylabel="angle, rad", ylim=(-2.6, 2.6))
    axes.set_title(title, fontsize=9)
    axes.legend(loc="upper right", frameon=False, fontsize=8, ncols=2)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])


PARTS: dict[str, Callable[[pathlib.Path, pathlib.Path], None]] = {
    f.__name__: f for f in (robots, ant, g1, h1, flip, meshes, swing_up, identification)
}


def main() -> None:
    """Write the files of the gallery."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--out", type=pathlib.Path, default="docs/images/gallery")
    made.add_argument("--runs", type=pathlib.Path, default="runs")
    made.add_argument("--only", nargs="*", choices=PARTS, default=[*PARTS])
    options = made.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        PARTS[name](options.out / f"{name}.webp", options.runs)


if __name__ == "__main__":
    main()
