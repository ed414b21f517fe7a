"""Compare eqsim's tasks with those of dm_control, step by step.

python plugins/eqsim-dmc/tests/parity.py --markdown plugins/eqsim-dmc/PARITY.md
"""

import argparse
import importlib.metadata
import pathlib
import platform
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _dm_control import flat, ours, programs, stacked, Start, TASKS, Theirs


TOLERANCE, NUDGE = 1e-5, 1e-15
COMPARED = "reset", "one step: obs", "one step: reward"
PACKAGES = "eqsim", "dm_control", "mujoco", "jax", "numpy"
EXPLANATION = """\
Each task is compared with dm_control's from several random initial states, over control steps
with random actions from the full range, in double precision. dm_control's tasks use a converged
solver (Newton, tolerance 0) and converged collision detection (`ccd_tolerance` 1e-15), and MuJoCo
evaluates forces at the new state after each step (`mj_forward`). Differences are relative to
max(1, |dm_control's value|); the table shows the largest over all entries, steps and initial
states.

- `run`: number of initial states, and of control steps from each.
- `reset`: difference of the first observation.
- `alone`: difference of two independent simulations from the same initial state, until they
  diverge.
- `part at`: step at which a difference first exceeds {tolerance:g}. Motion with contacts is
  chaotic, so rounding differences grow.
- `one step`: difference after one step from dm_control's state. This excludes chaos and measures
  the difference between the tasks.
- `rounding`: difference between dm_control's step and its step from a state that is changed by
  {nudge:g}. This difference is large if a step amplifies rounding, for instance between
  capsules that are nearly parallel.
- `rewarded`: fraction of steps with a positive reward. If it is zero, `tests/test_suite.py`
  compares rewards of successful poses.
- `as shipped`: median difference from an unmodified dm_control task in an independent simulation,
  with the solver and collision settings of the file, and with forces and accelerations of the
  previous time step."""


class Path(NamedTuple):
    """States and observations of dm_control from one initial state; one more than
    steps."""

    states: list[Start]
    actions: list[np.ndarray]
    obs: list[np.ndarray]
    rewards: list[float]


def main() -> int:
    """Print the table; return the number of tasks that disagree."""
    options = _options()
    jax.config.update("jax_enable_x64", True)
    rows = [_compared(name, options) for name in options.tasks]
    text = report(rows, options.markdown)
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(text)
    return sum(not _agrees(row) for row in rows)


def follow(env: Theirs, seed: int, steps: int) -> Path:
    """Simulate dm_control's task with random actions."""
    rng = np.random.default_rng(seed)
    obs = flat(env.reset())
    path = Path([env.state()], [], [obs], [])
    for _ in range(steps):
        action = env.draw_action(rng)
        parts, reward = env.step(action)
        path.states.append(env.state())
        path.actions.append(action)
        path.obs.append(flat(parts))
        path.rewards.append(reward)
    return path


def magnified(env: Theirs, seed: int, path: Path) -> float:
    """Return differences between observations of dm_control's steps, and of its steps
    from states that differ in the last digit.

    **Arguments:**

    - `env`, `seed`: environment and seed of the path.
    """
    env.reset()
    rng, most = np.random.default_rng(seed), 0.0
    for start, action, obs in zip(path.states, path.actions, path.obs[1:]):
        nudge = lambda x: (
            x + NUDGE * np.maximum(1.0, abs(x)) * rng.choice([-1, 1], x.shape)
        )
        env.place(nudge(start.q), nudge(start.qd), start.act)
        most = max(most, _relative(flat(env.step(action)[0]), obs))
    return most


def _compared(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the row of one task."""
    began = time.time()
    seeds = range(options.seed, options.seed + options.seeds)
    paths, raw = (
        [follow(Theirs(name, seed, refreshed), seed, options.steps) for seed in seeds]
        for refreshed in (True, False)
    )
    starts, forced, free = _errors(name, paths, options.steps)
    beyond = ~(free.max(axis=-1) <= TOLERANCE)
    parted = [int(np.argmax(run)) if np.any(run) else None for run in beyond]
    together = np.concatenate([run[:end] for run, end in zip(free, parted)])
    rewards = np.array([path.rewards for path in paths])
    shipped = [
        np.median([_relative(y, x) for a, b in zip(paths, raw) for x, y in pick(a, b)])
        for pick in (
            lambda a, b: list(zip(a.obs, b.obs))[1:],
            lambda a, b: zip(a.rewards, b.rewards),
        )
    ]
    most = lambda errors: float(np.max(errors, initial=0.0))
    rounding = [magnified(Theirs(name, s), s, path) for s, path in zip(seeds, paths)]
    row = {
        "task": name,
        "run": f"{options.seeds} x {options.steps}",
        "reset": max(starts),
        "alone: obs": most(together[:, 0]),
        "alone: reward": most(together[:, 1]),
        "part at": ", ".join(str(t + 1) for t in parted if t is not None) or "never",
        "one step: obs": most(forced[..., 0]),
        "one step: reward": most(forced[..., 1]),
        "rounding": max(rounding),
        "rewarded": float(np.mean(rewards > 0.0)),
        "as shipped: obs": float(shipped[0]),
        "as shipped: reward": float(shipped[1]),
    }
    print(f"{row} [{time.time() - began:.0f} s]", file=sys.stderr, flush=True)
    return row


def _errors(name: str, paths: list[Path], steps: int):
    """Return errors of the initial states; and `(paths, steps, 2)` errors of
    observation and reward, for each step from dm_control's state, and for independent
    simulations."""
    begin, step = programs(ours(name))
    alone, first = begin(stacked([path.states[0] for path in paths]))
    starts = [_relative(first.obs[i], path.obs[0]) for i, path in enumerate(paths)]
    forced, free = (np.zeros((len(paths), steps, 2)) for _ in range(2))
    for t in range(steps):
        actions = jnp.asarray(np.stack([path.actions[t] for path in paths]))
        guided, _ = begin(stacked([path.states[t] for path in paths]))
        _, near = step(guided, actions)
        alone, far = step(alone, actions)
        for timestep, errors in ((near, forced), (far, free)):
            for i, path in enumerate(paths):
                errors[i, t, 0] = _relative(timestep.obs[i], path.obs[t + 1])
                errors[i, t, 1] = _relative(timestep.reward[i], path.rewards[t])
    return starts, forced, free


def _relative(ours, theirs) -> float:
    theirs = np.asarray(theirs)
    scale = np.maximum(1.0, np.abs(theirs))
    return float(np.max(np.abs(np.asarray(ours) - theirs) / scale))


def _agrees(row: dict[str, Any]) -> bool:
    return max(row[name] for name in COMPARED) <= TOLERANCE


def report(rows: list[dict[str, Any]], old: pathlib.Path | None) -> str:
    """Return the table with an explanation, in Markdown.

    **Arguments:**

    - `rows`: rows of the tasks that were run.
    - `old`: file of an earlier report, whose rows of other tasks are kept.
    """
    names = list(rows[0])
    lines = _old_lines(old, [row["task"] for row in rows], len(names))
    lines += [[_show(row[name]) for name in names] for row in rows]
    lines = [names, ["---"] + ["--:"] * (len(names) - 1), *sorted(lines)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    column = lambda name: [float(line[names.index(name)]) for line in lines[2:]]
    worst = np.max([column(name) for name in COMPARED], axis=0)
    bad = [line[0] for line, most in zip(lines[2:], worst) if not most <= TOLERANCE]
    says = f"These disagree: {', '.join(bad)}." if bad else "No task disagrees."
    versions = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in PACKAGES)
    where = f"{versions}; Python {platform.python_version()}; {jax.default_backend()}."
    text = EXPLANATION.format(tolerance=TOLERANCE, nudge=NUDGE)
    title = "# Parity with dm_control"
    return f"{title}\n\n{text}\n\n{table}\n\n{says}\n\n{where}\n"


def _old_lines(
    old: pathlib.Path | None, done: list[str], width: int
) -> list[list[str]]:
    """Return the rows of an earlier report, without those of some tasks."""
    if old is None or not old.exists():
        return []
    lines = [line.strip("| ").split(" | ") for line in old.read_text().splitlines()]
    return [
        line
        for line in lines
        if len(line) == width and line[0] in TASKS and line[0] not in done
    ]


def _show(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.2g}" if value == 0.0 or value >= 0.01 else f"{value:.1e}"


def _options() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = made.add_argument
    add("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    add("--seeds", type=int, default=5, help="random starts of each")
    add("--seed", type=int, default=0, help="the first of them")
    add("--steps", type=int, default=200)
    add(
        "--markdown",
        type=pathlib.Path,
        help="file to write; rows of tasks not run are kept",
    )
    options = made.parse_args()
    if options.seeds < 1 or options.steps < 1:
        made.error("--seeds and --steps must be positive")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
