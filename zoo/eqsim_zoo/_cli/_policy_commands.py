"""Commands that run a policy or take it elsewhere: `eqsim record`, `export` and `replay`."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro
from rich.table import Table

from eqsim import AbstractController, AbstractEnv, agent_policy
from eqsim.envs import is_import_path
from eqsim.plugins import CommandError
from eqsim.terrain import (
    AbstractTerrain,
    Blocks,
    Obstacles,
    Rough,
    Slope,
    Stairs,
    Waves,
)

from ..data.dataset import About, Dataset, joined
from ..data.files import save_data
from ..data.recording import measured_returns, noisy_policy, RandomPolicy, record
from ..export import export_policy, PolicyFormat, Replay, replay
from ..export.mujoco_replay import Servo
from ..runs.folders import read_config
from ..runs.offline import kind_of
from ..runs.run import Run
from ..training import Result
from ..training.evaluation import evaluate_policy
from ._printing import console, plain_table, sentences
from ._reading import read


RANDOM = "random"
Terrain = Literal["stairs", "slope", "rough", "blocks", "obstacles", "waves"]
"""Kinds of terrain whose size is one height."""
_Several = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
_Shares = Annotated[tuple[float, ...], tyro.conf.UseAppendAction]


@dataclasses.dataclass(frozen=True)
class Request:
    """The arguments of `eqsim record`."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Name of the environment, for instance `hopper`, or `module:Class`."""
    policy: Annotated[_Several, tyro.conf.arg(metavar="RUN")] = ()
    """Policy: the folder of a run, or `random`, which is the default. May be repeated; the
    policies then record their shares one after the other."""
    share: Annotated[_Shares, tyro.conf.arg(metavar="SHARE")] = ()
    """Share of the steps, one per policy in their order; by default equal shares."""
    steps: float = 1e5
    """Number of control steps of all policies together, for instance 2e5."""
    out: str = "data.npz"
    """File to write."""
    drawn: bool = False
    """Sample the actions of agents, as in training; by default they are deterministic."""
    noise: float = 0.0
    """Standard deviation of noise added to the actions of agents, scaled to -1 to 1."""
    best: bool = False
    """Use the checkpoints with the best evaluation, which is the default, except for
    skills."""
    last: bool = False
    """Use the last checkpoints."""
    expert: str | None = None
    """Folder of a run whose mean return becomes the normalized score 100."""
    random_return: float | None = None
    """Mean return of normalized score 0; by default that of uniform actions is measured."""
    expert_return: float | None = None
    """Mean return of normalized score 100, if it is not measured with `--expert`."""
    episodes: int = 64
    """Number of episodes with which these returns are measured."""
    seed: int = 0
    """Random seed."""
    num_envs: int | None = None
    """Number of parallel environments; by default at most 64, and few enough that each one
    records a full episode."""
    episode_length: int | None = None
    """Time limit of an episode in control steps; by default as in the runs, or 1000."""
    pool_size: int = 1024
    """Number of initial states computed in advance; 0 computes one for each episode."""
    pipeline: str | None = None
    """Name of the pipeline; by default as in the runs, or that of the environment."""
    overwrite: bool = False
    """Overwrite an existing file."""


def record_data(request: Annotated[Request, tyro.conf.arg(name="")]) -> None:
    """Record a dataset with trained agents, random actions, or both."""
    screen, out = console(), pathlib.Path(request.out)
    with sentences():
        parts = _parts(request)
        runs = {folder: _load(request, folder) for folder in _folders(request)}
        length = _episode_length(request, runs)
        env, key = _environment(request, runs), jax.random.key(request.seed)
        found, returns, table = [], [], plain_table("source", *_COLUMNS)
        for number, (name, steps) in enumerate(parts):
            data = record(
                env,
                _policy(request, env, runs.get(name)),
                jax.random.fold_in(key, number),
                steps=steps,
                num_envs=request.num_envs,
                episode_length=length,
                pool_size=request.pool_size,
                name=request.env,
            )
            source = _source(request, name, runs.get(name))
            returns.append(measured_returns(data, request.num_envs, length))
            _add_row(table, source, data, returns[-1])
            found.append(dataclasses.replace(data, about=About(request.env, (source,))))
        data = joined(found) if len(found) > 1 else found[0]
        if len(found) > 1:
            _add_row(table, "all", data, np.concatenate(returns))
        about = _about(request, data.about, env, runs, length)
        out.parent.mkdir(parents=True, exist_ok=True)
        save_data(dataclasses.replace(data, about=about), out)
    screen.print(table)
    screen.print(
        f"mean return of random actions {_number(about.random_return)}, of an expert "
        f"{_number(about.expert_return)}"
    )
    screen.print(f"wrote {out}: {len(data):,} steps, {out.stat().st_size / 1e6:.3g} MB")


def _parts(request: Request) -> list[tuple[str, int]]:
    """Check the request, and return the policies with their numbers of steps."""
    names = request.policy or (RANDOM,)
    shares = request.share or (1.0,) * len(names)
    if request.best and request.last:
        raise CommandError("`--best` and `--last`: choose one of them.")
    if request.expert is not None and request.expert_return is not None:
        raise CommandError("`--expert` and `--expert-return`: choose one of them.")
    if len(shares) != len(names) or not all(x > 0.0 for x in shares):
        raise ValueError(
            f"Give one positive `--share` for each of the {len(names)} policies, got "
            f"{len(shares)} ({', '.join(map(str, shares))})."
        )
    if not request.noise >= 0.0 or request.seed < 0 or request.episodes < 1:
        raise ValueError(
            "`--noise` and `--seed` must be at least 0 and `--episodes` at least 1, "
            f"got {request.noise}, {request.seed} and {request.episodes}."
        )
    if not request.steps >= len(names) or request.steps != request.steps // 1:
        raise ValueError(
            "`--steps` must be an integer with at least one step for each of "
            f"{len(names)} policies, got {request.steps:g}."
        )
    if pathlib.Path(request.out).exists() and not request.overwrite:
        raise FileExistsError(
            f"{request.out!r} already exists. Choose another file (`--out`), or overwrite it "
            "(`--overwrite`)."
        )
    ends = np.cumsum(shares) / np.sum(shares) * request.steps
    steps = np.diff(np.round(ends).astype(int), prepend=0)
    return [(name, max(1, int(number))) for name, number in zip(names, steps)]


def _folders(request: Request) -> list[str]:
    """Return the folders of all runs in the request, without repetition."""
    folders = [name for name in request.policy if name != RANDOM]
    return [*dict.fromkeys([*folders, *filter(None, [request.expert])])]


def _load(request: Request, folder: str) -> Result:
    stored = read_config(pathlib.Path(folder))["run"]["env"]
    # `ENV` of the command names an environment that the run does not store.
    needed = stored is None or is_import_path(stored)
    env = request.env if needed else None
    return read(folder, env, request.best, request.last)


_SHARED = ("env", "pipeline", "options", "randomize", "skills")
"""Fields of a run that determine the environment."""


def _environment(request: Request, runs: dict[str, Result]) -> AbstractEnv:
    """Return the environment, which all runs must share."""
    wanted: dict[str, Any] = {"env": request.env}
    if request.pipeline is not None or not runs:
        wanted["pipeline"] = request.pipeline
    for folder, run in runs.items():
        for name, value in wanted.items():
            own = vars(run.run)[name]
            if own != value:
                raise ValueError(
                    f"The run in {folder!r} was trained with {name} {own!r}, not with "
                    f"{value!r}. All recorded policies must have the same settings."
                )
        wanted = {name: vars(run.run)[name] for name in _SHARED}
    return Run("", **wanted, steps=1).environment()


def _episode_length(request: Request, runs: dict[str, Result]) -> int:
    if request.episode_length is not None:
        return request.episode_length
    return max((run.run.episode_length for run in runs.values()), default=1000)


def _policy(
    request: Request, env: AbstractEnv, run: Result | None
) -> Callable[[Any, Any], Any] | AbstractController:
    if run is None:
        return RandomPolicy(env.action_range)
    agent, state = run.member(0)
    policy = agent_policy(agent, state, sample=request.drawn)
    noise = request.noise
    return noisy_policy(policy, env.action_range, noise) if noise else policy


def _source(request: Request, name: str, run: Result | None) -> str:
    """Return a description of the policy."""
    if run is None:
        return RANDOM
    words = [f"{kind_of(run.members.agent(0)).__name__} of {name}"]
    words += [run.members.name(0)] if run.members.many else []
    words.append(f"after {run.counters.steps:,} steps")
    words += ["drawn"] if request.drawn else []
    words += [f"noise {request.noise:g}"] if request.noise else []
    return ", ".join(words)


_COLUMNS = ("steps", "trajectories", "measured episodes", "return", "deviation")


def _add_row(table: Table, source: str, data: Dataset, returns: np.ndarray) -> None:
    """Add the counts of a dataset, and its `measured_returns`."""
    mean = _number(returns.mean() if len(returns) else None)
    spread = _number(returns.std(ddof=1) if len(returns) > 1 else None)
    counts = f"{len(data):,}", f"{len(data.ends()):,}", f"{len(returns):,}"
    table.add_row(source, *counts, mean, spread)


def _number(x: float | None) -> str:
    return "not known" if x is None else f"{x:.4g}"


def _about(
    request: Request,
    about: About,
    env: AbstractEnv,
    runs: dict[str, Result],
    length: int,
) -> About:
    """Add the returns by which scores are normalized."""

    def measured(policy) -> float:
        key = jax.random.fold_in(jax.random.key(request.seed), 2**31 - 1)
        found = evaluate_policy(
            policy, env, key, episodes=request.episodes, episode_length=length
        )
        return float(found.mean())

    lowest, highest = request.random_return, request.expert_return
    if lowest is None:
        lowest = measured(RandomPolicy(env.action_range))
    if request.expert is not None:
        agent, state = runs[request.expert].member(0)
        highest = measured(agent_policy(agent, state))
    return about._replace(random_return=lowest, expert_return=highest)


def export_run(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    out: str,
    format: PolicyFormat = "onnx",
    env: str | None = None,
    best: bool = False,
    last: bool = False,
    member: int = 0,
) -> None:
    """Write the policy of a run to a file that needs no JAX: an ONNX model, a NumPy module
    or a TorchScript module. Normalization and scaling are included.

    Args:
        folder: folder of the run.
        out: file to write, which ends with .onnx, .py or .pt.
        format: `onnx` needs the extra `export`, `torchscript` PyTorch.
        env: name of the environment, or `module:Class`; by default the stored name.
        best: use the checkpoint with the best evaluation. This is the default, except for
            skills.
        last: use the last checkpoint.
        member: number of the member in the order of `eqsim eval`, from 0.
    """
    if best and last:
        raise CommandError("`--best` and `--last`: choose one of them.")
    with sentences():
        run = read(folder, env, best, last)
        if not 0 <= member < run.members.count:
            raise CommandError(
                f"`--member` must be at least 0 and below {run.members.count}, got {member}."
            )
        name = env or read_config(pathlib.Path(folder))["run"]["env"] or ""
        about = export_policy(
            *run.member(member), run.environment(), out, format=format, name=name
        )
    screen = console()
    screen.print(f"wrote {out}: {about.agent} on {about.env}")
    if about.start:
        screen.print(f"The policy has a memory: {', '.join(about.start)}.")
    if about.deployment is None:
        screen.print(
            f"Without a deployment, so `eqsim replay` refuses it: {about.reason}"
        )


def replay_policy(
    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")],
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    command: tuple[float, float, float] = (0.5, 0.0, 0.0),
    seconds: float = 20.0,
    latency: float = 0.0,
    noise: float = 0.0,
    push: float = 0.0,
    gait: float = 0.0,
    servo: Servo = "policy",
    terrain: Terrain | None = None,
    height: float | None = None,
    blind: bool = False,
    seed: int = 0,
    video: str | None = None,
) -> None:
    """Run a policy in MuJoCo C on the scene of a robot, and print how it tracks commands, or a
    motion.

    Args:
        policy: ONNX file, written by `eqsim export`.
        model: MJCF file of the scene.
        command: forward and lateral velocity, m/s, and yaw rate, rad/s.
        seconds: duration, s.
        latency: time from an observation to the new targets of the servos, s.
        noise: level of noise on observations; 1 is typical of sensors of legged robots.
        push: force on the root in random horizontal directions, 0.2 s every 5 s, N.
        gait: frequency of the gait phases, Hz, if the policy observes them.
        servo: gains of the joint servos: those the policy was trained with, or those of
            the model file.
        terrain: kind of terrain of `eqsim.terrain` in place of the floor, about a platform
            on which the robot starts.
        height: height of steps, blocks, obstacles and noise, amplitude of waves, m, or
            tangent of a slope; by default 0.1. Stairs and slopes lead down if it is
            negative.
        blind: run a policy that does not observe the ground on terrain.
        seed: random seed of noise, pushes and terrain.
        video: write an animation (.gif).
    """
    with sentences():
        if terrain is None and (height is not None or blind):
            raise CommandError("`--height` and `--blind` need `--terrain`.")
        size = 0.1 if height is None else height
        found = replay(
            policy,
            model,
            command=command,
            seconds=seconds,
            latency=latency,
            noise=noise,
            push=push,
            gait=gait,
            servo=servo,
            terrain=None if terrain is None else terrain_kind(terrain, size),
            blind=blind,
            seed=seed,
            video=video,
        )
    screen = console()
    table = plain_table("", "mean", "largest")
    for row in _rows(found):
        table.add_row(*row)
    screen.print(table)
    where = f"{found.distance:.2f} m from the start"
    if terrain is not None:
        where += f" and {found.rise:.2f} m above it"
    if terrain == "stairs":
        where += f" ({round(found.rise / abs(size))} steps)"
    screen.print(
        f"{found.seconds:g} s: {found.falls} falls, {where}, torques saturated "
        f"{100 * found.saturation:.2g} % of the time, mean power "
        f"{found.power:.4g} W"
    )
    if video is not None:
        screen.print(f"wrote {video}")


def terrain_kind(name: Terrain, height: float) -> AbstractTerrain:
    """Return the terrain that `--terrain` and `--height` describe, see `replay_policy`.

    **Raises:** `ValueError` for other heights than those.
    """
    down, size = height < 0.0, abs(height)
    if not 0.0 < size < np.inf or (down and name not in ("stairs", "slope")):
        raise ValueError(
            "`--height` must be positive and finite, or negative for stairs and slopes that "
            f"lead down, got {height:g} for {name!r}."
        )
    # Way down: the platform is the highest part.
    kinds: dict[str, AbstractTerrain] = {
        "stairs": Stairs(step_height=size, up=down),
        "slope": Slope(slope=size, up=down),
        "rough": Rough(height=size),
        "blocks": Blocks(height=size),
        "obstacles": Obstacles(height=size),
        "waves": Waves(amplitude=size),
    }
    return kinds[name]


def _rows(found: Replay) -> list[tuple[str, str, str]]:
    """Return errors of a motion if there is one, else of commands."""
    velocity = found.velocity_error, found.largest_velocity_error
    yaw = found.yaw_error, found.largest_yaw_error
    rows = {"velocity error (m/s)": velocity, "yaw rate error (rad/s)": yaw}
    if np.isfinite(found.joint_error):
        joints = found.joint_error, found.largest_joint_error
        anchor = found.anchor_error, found.largest_anchor_error
        rows = {"joint error (rad)": joints, "anchor error (m)": anchor}
    show = lambda x: f"{x:.3g}" if np.isfinite(x) else "none"
    return [(name, show(mean), show(most)) for name, (mean, most) in rows.items()]
