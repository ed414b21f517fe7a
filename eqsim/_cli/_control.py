"""`eqsim control`"""

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
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.text import Text

from .._errors import RESULTS
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
from ..envs import AbstractEnv
from ..model import State
from ..render import camera_for, images, write_gif
from ..render._draw import check_image
from ._names import at_least_one, environment, UsageError


Solver = Literal["ilqr", "cem", "mppi", "predictive"]


class ControlRequest(NamedTuple):
    """The arguments of `eqsim control`."""

    env: str
    solver: Solver
    pipeline: str | None
    horizon: int
    steps: int
    samples: int
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
        at_least_one(f"--{option}", value)
    if not request.contact >= 0.0:
        raise UsageError(f"`--contact` must be at least 0, got {request.contact}.")
    console = Console(highlight=False)
    env = environment(request.env, request.pipeline)
    start, _ = eqx.filter_jit(env.reset)(jr.key(request.seed))
    if not isinstance(start, State):
        raise UsageError(
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
            raise UsageError(f"`--solver ilqr`: {error}") from error
        return plan.actions, plan.value, before, plan.gains, plan.result
    planner = _planner(request)
    run = eqx.filter_jit(lambda s, k: planner.solve(problem, s, k, guess))
    return *run(start, key), before, None, RESULTS.successful


def _planner(request: ControlRequest) -> AbstractPlanner:
    samples, steps = request.samples, request.steps
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
