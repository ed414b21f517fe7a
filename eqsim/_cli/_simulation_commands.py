"""`eqsim rollout` and `eqsim control`: random actions or a plan, written as data, plots and
animations."""

import base64
import html
import io
import json
import pathlib
import time
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import matplotlib
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._errors import RESULTS
from .._rollout import rollout
from .._trajectory import Episodes, episodes
from ..control import (
    AbstractPlanner,
    Anneal,
    CEM,
    ControlProblem,
    ILQR,
    MPPI,
    plan_cost,
    PredictiveSampling,
    RewardCost,
)
from ..envs import AbstractEnv, Timestep
from ..model import JointKind, State, System
from ..plugins import CommandError
from ..render import camera_for, images, write_gif
from ..render.drawing import check_image
from ..wrappers import (
    AbstractWrapper,
    AutoReset,
    DomainRandomization,
    episode_robot,
    Lifetime,
    nested_envs,
    TimeLimit,
)
from ._inventory import at_least_one, environment, preset


# --- eqsim rollout ---


FRAMES = 300
"""Largest number of frames of an animation."""


class Request(NamedTuple):
    """The arguments of `eqsim rollout`."""

    env: str
    pipeline: str | None
    num_envs: int
    length: int
    seed: int
    randomize: str | None
    out: str
    picture: bool


class RandomPolicy(eqx.Module):
    """A policy of random actions: uniform between bounds, normal without bounds, and
    half-normal with a single bound."""

    bounds: Float[Array, "nu 2"]

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        low, high = self.bounds.T
        key_uniform, key_normal = jr.split(key)
        share = jr.uniform(key_uniform, low.shape, low.dtype)
        normal = jr.normal(key_normal, low.shape, low.dtype)
        below, above = jnp.isfinite(low), jnp.isfinite(high)
        one = jnp.where(below, low + jnp.abs(normal), normal)
        one = jnp.where(above & ~below, high - jnp.abs(normal), one)
        both = below & above
        span = jnp.where(both, high - low, 1.0)
        return jnp.where(both, jnp.where(both, low, 0.0) + share * span, one)


class Kept(NamedTuple):
    """Data stored of each step; the state is stored only for animations."""

    q: Array
    qd: Array
    action: Array
    timestep: Timestep
    state: Any


def run_rollout(request: Request) -> None:
    """Run random actions; print episode statistics and write files.

    The command runs

        key_reset, key = jr.split(jr.key(seed))
        start = eqx.filter_vmap(env.reset)(jr.split(key_reset, num_envs))
        eqsim.rollout(env, policy, jr.split(key, num_envs), length, start=start)

    where `env` is wrapped in `DomainRandomization` (with `--randomize`), `TimeLimit`
    and `AutoReset`.

    `FILE.npz` contains, with the axes (environment, step, ...):

    - `observations`, `next_observations`: observation before and after each step; the
        latter before any reset. The parts of a dictionary are `observations/NAME`.
    - `actions`, `rewards`, `terminated`, `truncated`; `terms/NAME`: each reward term;
        `descriptors`, if the environment has any.
    - `valid`: false if the step only reset the environment.
    - `q`, `qd`: coordinates and velocities of the robot before each step.
    - `dt`: duration of a control step, s.
    - `env`: name of the environment.
    """
    at_least_one("--num-envs", request.num_envs)
    at_least_one("--length", request.length)
    console = Console(highlight=False)
    env = _wrapped(environment(request.env, request.pipeline), request)
    path = _path(request.out)
    camera = None
    if request.picture:
        camera = camera_for(env.sys)
        check_image(env.sys, camera, 320, 240)
    begin = time.perf_counter()
    first, kept = _run(env, request, console)
    statistics = eqx.filter_jit(episodes)(kept.timestep)
    arrays = _arrays(env, *jtu.tree_map(np.asarray, (first, kept._replace(state=None))))
    arrays["env"] = np.array(request.env)
    table, text = _summary(request, statistics, kept.timestep)
    console.print(table)
    console.print(Text(f"{text}, {time.perf_counter() - begin:.1f} s with compiling"))
    np.savez(path.with_name(path.name + ".npz"), allow_pickle=False, **arrays)
    written = [".npz", ".png"]
    plot(
        path.with_name(path.name + ".png"), _title(request), env.sys, arrays, statistics
    )
    if camera is not None:
        states = jtu.tree_map(lambda x: x[0, :FRAMES], kept.state)
        sys = eqx.filter_vmap(lambda state: episode_robot(env, state))(states)
        frames = images(sys, kept.q[0, :FRAMES], camera)
        write_gif(path.with_name(path.name + ".gif"), frames, float(env.dt))
        written.append(".gif")
    console.print(Text("wrote " + ", ".join(f"{path}{end}" for end in written)))


def _wrapped(env: AbstractEnv, request: Request) -> AbstractEnv:
    for layer in nested_envs(env):
        if isinstance(layer, AbstractWrapper) and layer.lifetime is Lifetime.RUN:
            if request.randomize is not None:
                raise CommandError(
                    f"`--randomize`: {request.env!r} resets itself (`{type(layer).__name__}`)"
                    ", so its robot cannot be randomized."
                )
            return env
    if request.randomize is not None:
        change = preset(request.env, request.randomize)
        try:
            env = DomainRandomization(env, change)
        except ValueError as error:
            raise CommandError(f"`--randomize {request.randomize}`: {error}") from error
    limited = TimeLimit(env, request.length)
    return AutoReset(limited)


def _path(out: str) -> pathlib.Path:
    """Return the output path without suffix, and create its folder."""
    path = pathlib.Path(out)
    if path.suffix in (".npz", ".png", ".gif"):
        path = path.with_suffix("")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _run(env: AbstractEnv, request: Request, console: Console):
    """Return the first timestep, and the data stored of each step."""
    key_reset, key = jr.split(jr.key(request.seed))
    with console.status("compiling and resetting"):
        keys = jr.split(key_reset, request.num_envs)
        start = eqx.filter_jit(eqx.filter_vmap(env.reset))(keys)

    def collect(state, action, timestep) -> Kept:
        physics = env.physics(state)
        whole = state if request.picture else None
        return Kept(physics.q, physics.qd, action, timestep, whole)

    policy, keys = RandomPolicy(env.action_range), jr.split(key, request.num_envs)
    kept, _ = rollout(
        env,
        policy,
        keys,
        request.length,
        start=start,
        collect=collect,
        progress=True,
    )
    return start[1], kept


def _arrays(env: AbstractEnv, first: Any, kept: Any) -> dict[str, np.ndarray]:
    """Return the arrays to write, by name; timesteps contain NumPy arrays."""
    timestep = kept.timestep
    led_to = timestep.obs if timestep.final_obs is None else timestep.final_obs
    shift = lambda x, y: np.concatenate([x[:, None], y[:, :-1]], axis=1)
    before = jtu.tree_map(shift, first.obs, timestep.obs)
    out = {
        **_named("observations", before),
        **_named("next_observations", led_to),
        "actions": kept.action,
        "rewards": timestep.reward,
        "terminated": timestep.terminated,
        "truncated": timestep.truncated,
        "valid": ~timestep.first,
        "q": kept.q,
        "qd": kept.qd,
        "dt": env.dt,
    }
    out |= {f"terms/{name}": value for name, value in timestep.terms.items()}
    if timestep.descriptor is not None:
        out["descriptors"] = timestep.descriptor
    return {name: np.asarray(value) for name, value in out.items()}


def _named(name: str, obs: Any) -> dict[str, Any]:
    """Return an observation by name; the parts of a dictionary as `name/part`."""
    if not isinstance(obs, dict):
        return {name: obs}
    parts = (_named(f"{name}/{key}", x) for key, x in sorted(obs.items()))
    return {key: x for part in parts for key, x in part.items()}


def _summary(request: Request, statistics: Episodes, timestep: Timestep):
    """Return a table of the episodes that ended, or of the running ones if none did."""
    ended = np.asarray(statistics.ended)
    number = int(ended.sum())
    pick = lambda x: np.asarray(x)[ended] if number else np.asarray(x)[:, -1]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("per episode" if number else "so far (none has ended)")
    for name in ("mean", "std"):
        table.add_column(name, justify="right")
    rows = {"return": statistics.returns, "length": statistics.length}
    rows |= {f"  {name}": value for name, value in statistics.terms.items()}
    for name, value in rows.items():
        values = pick(value)
        table.add_row(Text(name), f"{values.mean():.4g}", f"{values.std():.4g}")
    terminated = int(np.sum(np.asarray(timestep.terminated)[ended]))
    text = (
        f"{request.num_envs} environments x {request.length} steps: {number} episodes "
        f"ended, {terminated} terminated, {number - terminated} at a time limit"
    )
    return table, text


def _title(request: Request) -> str:
    title = f"{request.env}, random actions"
    if request.pipeline is not None:
        title += f", {request.pipeline}"
    if request.randomize is not None:
        title += f", randomized ({request.randomize})"
    many = "environment" if request.num_envs == 1 else "environments"
    return f"{title}: {request.num_envs} {many}, {request.length} steps"


# --- Plots of a rollout ---


_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "legend.frameon": False,
    "savefig.dpi": 110,
}


_BLUE, _ORANGE, _GRAY = "#1f6fb2", "#d1701f", "#444444"


_BANDS = ((0.05, 0.95, 0.16), (0.25, 0.75, 0.32))


def plot(
    path: pathlib.Path,
    title: str,
    sys: System,
    arrays: dict[str, np.ndarray],
    statistics: Episodes,
) -> None:
    """Plot returns, reward terms and some coordinates over time, for all environments.

    **Arguments:**

    - `arrays`: arrays of the data file, by name.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(12.5, 6.6))
        grid: Any = figure.subplots(2, 3)
        time = float(arrays["dt"]) * np.arange(arrays["rewards"].shape[1])
        after = time + float(arrays["dt"])
        _spread(grid[0, 0], after, np.asarray(statistics.returns))
        grid[0, 0].set_title("return of the episode so far")
        _terms(grid[0, 1], after, arrays)
        _histogram(grid[0, 2], arrays, statistics)
        chosen = coordinates(sys)[:3]
        for axes, (index, label) in zip(grid[1], chosen):
            _spread(axes, time, arrays["q"][..., index])
            axes.set_title(label)
        for axes in grid[1, len(chosen) :]:
            axes.remove()
        for axes in (*grid[0, :2], *grid[1, : len(chosen)]):
            axes.set_xlabel("time, s")
            axes.margins(x=0.0)
        figure.suptitle(title, x=0.01, ha="left", fontsize=13)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=4)
        figure.savefig(path)


def coordinates(sys: System) -> list[tuple[int, str]]:
    """Return indices and labels of coordinates, without quaternions, and with the
    height of a free body first."""
    joints, out = sys.joints, []
    for joint, kind in enumerate(joints.kinds):
        at, name = joints.q_starts[joint], joints.names[joint]
        link = sys.links.names[joints.links[joint]]
        if kind is JointKind.FREE:
            places = ("z", 2), ("x", 0), ("y", 1)
            out += [(at + k, f"{link}: {axis}, m") for axis, k in places]
        elif kind is JointKind.PRISMATIC:
            out.append((at, f"{name}, m"))
        elif kind is JointKind.REVOLUTE:
            out.append((at, f"{name}, rad"))
    if joints.kinds and joints.kinds[0] is JointKind.FREE:
        # For a robot with a free base, prefer one of its joints to a third position.
        out[2:3] = []
    return out


def _spread(axes, time: np.ndarray, values: np.ndarray) -> None:
    """Plot median and quantiles over environments, and the first environment."""
    if len(values) > 1:
        for low, high, alpha in _BANDS:
            edges = np.quantile(values, (low, high), axis=0)
            label = f"{low:.0%} to {high:.0%} of environments"
            axes.fill_between(
                time, *edges, color=_BLUE, alpha=alpha, linewidth=0, label=label
            )
        axes.plot(time, np.median(values, axis=0), color=_BLUE, label="median")
    axes.plot(time, values[0], color=_ORANGE, linewidth=0.9, label="environment 0")


def _terms(axes, time: np.ndarray, arrays: dict[str, np.ndarray]) -> None:
    for name, values in arrays.items():
        if name.startswith("terms/"):
            label = name.removeprefix("terms/")
            axes.plot(time, values.mean(axis=0), label=label, linewidth=1.2)
    axes.axhline(0.0, color=_GRAY, linewidth=0.6)
    axes.margins(y=0.35)  # Room for the legend.
    axes.set_title("reward per step, mean of environments")
    axes.legend(loc="upper left", ncols=3, fontsize=9)


def _histogram(axes, arrays: dict[str, np.ndarray], statistics: Episodes) -> None:
    ended = np.asarray(statistics.ended)
    returns, terminated = np.asarray(statistics.returns), arrays["terminated"]
    axes.set_title("return of whole episodes")
    if not ended.any():
        axes.text(0.5, 0.5, "none has ended", ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    ends = [("terminated", ended & terminated, _ORANGE)]
    ends.append(("time limit", ended & ~terminated, _BLUE))
    ends = [end for end in ends if end[1].any()]
    axes.hist(
        [returns[which] for _, which, _ in ends],
        np.histogram_bin_edges(returns[ended], bins=20),
        stacked=True,
        color=[color for _, _, color in ends],
        label=[f"{name} ({which.sum()})" for name, which, _ in ends],
    )
    axes.set_xlabel("return")
    axes.set_ylabel("episodes")
    axes.legend(loc="best", fontsize=9, frameon=True, framealpha=0.8)


# --- eqsim control ---


Solver = Literal["ilqr", "cem", "mppi", "predictive"]


class ControlRequest(NamedTuple):
    """The arguments of `eqsim control`."""

    env: str
    solver: Solver
    pipeline: str | None
    horizon: int
    steps: int
    samples: int | None
    contact: float
    seed: int
    out: str
    picture: bool


def run_control(request: ControlRequest) -> None:
    """Plan from a reset to maximize the reward of an environment, and write the plan.

    `FILE.npz` contains `q`, `qd` (`T + 1` rows), `actions`, `rewards` (`T` rows), `dt`,
    `env`, and `gains` of ILQR. `FILE.json` contains the request, the cost, the return and the
    result of the solver. `FILE.html` is a self-contained page with plots.
    """
    sizes = {k: request._asdict()[k] for k in ("horizon", "steps", "samples")}
    for option, value in sizes.items():
        at_least_one(f"--{option}", 1 if value is None else value)
    if not request.contact >= 0.0:
        raise CommandError(f"`--contact` must be at least 0, got {request.contact}.")
    if request.contact > 0.0 and request.solver != "ilqr":
        raise CommandError("`--contact` requires `--solver ilqr`: leave it out.")
    if request.samples is not None and request.solver == "ilqr":
        raise CommandError("`--solver ilqr` draws no samples: leave out `--samples`.")
    console = Console(highlight=False)
    env = environment(request.env, request.pipeline)
    start, _ = eqx.filter_jit(env.reset)(jr.key(request.seed))
    if not isinstance(start, State):
        raise CommandError(
            "Optimal control needs an environment whose state is that of its robot, "
            f"but the state of {request.env!r} is a {type(start).__name__}."
        )
    camera = None
    if request.picture:
        camera = camera_for(env.sys)
        check_image(env.sys, camera, 320, 240)
    begin = time.perf_counter()
    with console.status(f"compiling and solving ({request.solver})"):
        found = jax.block_until_ready(_solved(env, request, start))
    seconds = time.perf_counter() - begin
    arrays, report = _reported(env, request, start, found, seconds)
    path = pathlib.Path(request.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    at = lambda suffix: path.with_name(path.name + suffix)
    np.savez(at(".npz"), allow_pickle=False, **arrays)
    at(".json").write_text(json.dumps(report, indent=1))
    at(".html").write_text(_page(request, report, arrays))
    written = [".npz", ".json", ".html"]
    if camera is not None:
        many = jnp.asarray(arrays["q"])
        sys = eqx.filter_vmap(lambda _: env.sys)(many)
        frames = images(sys, many, camera)
        write_gif(at(".gif"), frames, float(env.dt))
        written.append(".gif")
    for name in ("return", "cost", "before", "result", "seconds"):
        console.print(Text(f"{name}: {report[name]}"))
    console.print(Text("wrote " + ", ".join(f"{path}{end}" for end in written)))


def _solved(env: AbstractEnv, request: ControlRequest, start: State):
    """Return actions, cost, initial cost, gains and result."""
    problem = ControlProblem(env, RewardCost(env), request.horizon)
    key = jr.key(request.seed)
    guess = 0.1 * jr.normal(key, (request.horizon, env.sys.nu), start.q.dtype)
    guess = jax.vmap(problem.clip)(guess)
    before = eqx.filter_jit(lambda u: plan_cost(problem, start)(u))(guess)
    if request.solver == "ilqr":
        contact = Anneal(request.contact) if request.contact > 0.0 else None
        solver = ILQR(max_steps=request.steps, contact=contact)
        try:
            plan = solver.solve(problem, start, guess)
        except ValueError as error:
            raise CommandError(f"`--solver ilqr`: {error}") from error
        return plan.actions, plan.value, before, plan.gains, plan.result
    planner = _planner(request)
    run = eqx.filter_jit(lambda s, k: planner.solve(problem, s, k, guess))
    return *run(start, key), before, None, RESULTS.successful


def _planner(request: ControlRequest) -> AbstractPlanner:
    samples, steps = request.samples or 128, request.steps
    if request.solver == "cem":
        return CEM(max(samples, 3), max(samples // 8, 1), steps)
    if request.solver == "mppi":
        return MPPI(samples, steps, std=0.3)
    return PredictiveSampling(samples, steps, knots=min(8, request.horizon))


def _reported(env, request: ControlRequest, start, found, seconds: float):
    actions, cost, before, gains, result = found

    def step(state, action):
        new, timestep = env.step(state, action)
        return new, (state, timestep.reward, timestep.terminated)

    last, (states, rewards, ends) = eqx.filter_jit(
        lambda s, u: jax.lax.scan(step, s, u)
    )(start, actions)
    join = lambda x, y: np.concatenate([np.asarray(x), np.asarray(y)[None]])
    arrays = {
        "q": join(states.q, last.q),
        "qd": join(states.qd, last.qd),
        "actions": np.asarray(actions),
        "rewards": np.asarray(rewards),
        "dt": np.asarray(env.dt),
        "env": np.array(request.env),
    }
    if gains is not None:
        arrays["gains"] = np.asarray(gains)
    report = {
        "request": request._asdict(),
        "return": float(np.sum(arrays["rewards"])),
        "terminated": bool(np.any(ends)),
        "cost": float(cost),
        "before": float(before),
        "result": RESULTS[result] or "successful",
        "seconds": round(seconds, 2),
    }
    return arrays, report


def _page(request: ControlRequest, report: dict[str, Any], arrays) -> str:
    """Return a self-contained page with plots."""
    rows = "".join(
        f"<tr><th>{html.escape(str(k))}</th><td>{html.escape(str(v))}</td></tr>"
        for k, v in {**request._asdict(), **report}.items()
        if k != "request"
    )
    title = html.escape(f"eqsim control {request.env}")
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{title}</title>'
        "<style>body{font-family:sans-serif;max-width:60em;margin:2em auto}"
        "th{text-align:left;padding-right:2em}img{max-width:100%}</style></head>"
        f"<body><h1>{title}</h1><table>{rows}</table>"
        f'<img alt="plan" src="data:image/png;base64,{_plots(arrays)}"></body></html>'
    )


def _plots(arrays) -> str:
    figure = Figure(figsize=(8.0, 7.5), layout="constrained")
    axes = figure.subplots(4, 1, sharex=True)
    dt = float(arrays["dt"])
    for axis, name in zip(axes, ("q", "qd", "actions", "rewards"), strict=True):
        values = arrays[name]
        axis.plot(dt * np.arange(len(values)), values, linewidth=1.0)
        axis.set_ylabel(name)
    axes[-1].set_xlabel("time (s)")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return base64.b64encode(file.getvalue()).decode()
