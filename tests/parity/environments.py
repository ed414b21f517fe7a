"""Compare eqsim's environments with Gymnasium's, step by step.

python tests/parity environments --markdown out/environments_parity.md
"""

import argparse
import pathlib
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _bench import caption, say, setting, table, write

import eqsim

from .gymnasium_envs import draw_action, IDS, refreshed, shipped, term_of
from .reference import quick_compile


TOLERANCE = 1e-5
EXPLANATION = """\
Each environment is compared with Gymnasium's from {seeds} random initial states, for up to
{steps} control steps of random actions over the full action range, in double precision. For
the comparison, Gymnasium's environments use a converged solver (Newton, tolerance 0), and
MuJoCo evaluates positions and forces at the new state after each step (`mj_forward`,
`mj_rnePostConstraint`). Differences are relative to max(1, |Gymnasium's value|); the table
shows the largest over all entries, steps and initial states.

- `reset`: difference of the first observation.
- `alone`: difference of two independent simulations from the same initial state, until they
  diverge.
- `part at`: step of each simulation at which a difference first exceeds {tolerance:g}. Motion
  with contacts is chaotic, so rounding differences grow.
- `one step`: difference after one step from Gymnasium's state. This excludes chaos and
  measures the difference between the environments.
- `worst term`: reward term with the largest difference after one step.
- `ends alike`: yes if both environments terminate at the same steps.
- `as shipped`: median difference from an unmodified Gymnasium environment in an independent
  simulation, with the solver settings of the file and without the additional evaluation at
  the new state."""


class Path(NamedTuple):
    """Gymnasium's states and results from one initial state; one more state than steps."""

    states: list
    actions: list
    obs: list
    rewards: list
    infos: list
    ended: list


def main() -> int:
    """Print the table; return the number of environments that disagree."""
    options = _options()
    where = setting(options)
    rows = [_compared(name, options) for name in options.envs]
    text = report(where, rows, options)
    print(f"\n{text}")
    write(options.markdown, text)
    write(options.json, {"where": where, "rows": rows})
    return sum(not _agrees(row) for row in rows)


def _agrees(row: dict[str, Any]) -> bool:
    errors = [row["one step: obs"], row["one step: reward"], row["reset"]]
    return max(errors) <= TOLERANCE and row["ends alike"] == "yes"


def follow(env, seed: int, steps: int) -> Path:
    """Simulate Gymnasium's environment with random actions."""
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    path = Path([_state(env)], [], [env._get_obs()], [], [], [])
    while len(path.actions) < steps and not any(path.ended):
        # The same values, in double precision.
        action = draw_action(env, rng).astype(float)
        obs, reward, ended, _, info = env.step(action)
        reports = _state(env), action, obs, reward, info, bool(ended)
        for column, value in zip(path, reports, strict=True):
            column.append(value)
    return path


def _state(env) -> tuple[np.ndarray, np.ndarray]:
    return env.data.qpos.copy(), env.data.qvel.copy()


def _compared(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the row of one environment."""
    began = time.time()
    theirs, raw = refreshed(name), shipped(name)
    seeds = range(options.seed, options.seed + options.seeds)
    paths = [follow(theirs, seed, options.steps) for seed in seeds]
    other = [follow(raw, seed, options.steps) for seed in seeds]
    for env in (theirs, raw):
        env.close()
    row = {"environment": name, "steps": _span([len(p.actions) for p in paths])}
    row |= _summary(_Runs(name, paths).errors(), paths)
    late = [_late(a, b) for a, b in zip(paths, other, strict=True)]
    for k, what in enumerate(("obs", "reward")):
        row[f"as shipped: {what}"] = float(
            np.median(np.concatenate([x[k] for x in late]))
        )
    say(f"{name}: {row} [{time.time() - began:.0f} s]")
    return row


def _span(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


class Error(NamedTuple):
    """Differences of one step: observation, reward, reward terms; and true if both
    terminated."""

    obs: float
    reward: float
    terms: dict[str, float]
    alike: bool

    @property
    def largest(self) -> float:
        return max(self.obs, self.reward, *self.terms.values())


class _Runs:
    """eqsim along paths of Gymnasium."""

    def __init__(self, name: str, paths: list[Path]):
        self.name, self.paths = name, paths
        env, options = eqsim.make(name), {"compiler_options": quick_compile()}
        init = lambda q, qd: env.pipeline.init(env.sys, q, qd)
        step = lambda state, action: env.step(state, action)
        self.begin = jax.jit(jax.vmap(lambda q, qd: env.begin(init(q, qd))), **options)
        self.step = jax.jit(jax.vmap(step), **options)

    def errors(self) -> tuple[list[float], list[list[Error]], list[list[Error]]]:
        """Return errors of the initial observations, of each step from Gymnasium's
        state, and of independent simulations."""
        paths = self.paths
        alone, first = self.begin(*self._states(0))
        starts = [_relative(first.obs[i], p.obs[0]) for i, p in enumerate(paths)]
        forced: list[list[Error]] = [[] for _ in paths]
        free: list[list[Error]] = [[] for _ in paths]
        for t in range(max(len(p.actions) for p in paths)):
            pick = [p.actions[min(t, len(p.actions) - 1)] for p in paths]
            actions = jnp.asarray(np.stack(pick))
            guided, _ = self.begin(*self._states(t))
            _, near = self.step(guided, actions)
            alone, far = self.step(alone, actions)
            for i, path in enumerate(paths):
                if t < len(path.actions):
                    forced[i].append(self._error(near, i, t))
                    free[i].append(self._error(far, i, t))
        return starts, forced, free

    def _states(self, t: int):
        rows = [path.states[min(t, len(path.actions))] for path in self.paths]
        return tuple(jnp.asarray(np.stack(x)) for x in zip(*rows))

    def _error(self, timestep, i: int, t: int) -> Error:
        path, terms = self.paths[i], {}
        for term, value in timestep.terms.items():
            key = term_of(self.name, term)
            terms[term] = _relative(
                value[i], 1.0 if key is None else path.infos[t][key]
            )
        return Error(
            _relative(timestep.obs[i], path.obs[t + 1]),
            _relative(timestep.reward[i], path.rewards[t]),
            terms,
            bool(timestep.terminated[i]) == path.ended[t],
        )


def _relative(ours, theirs) -> float:
    theirs = np.asarray(theirs)
    scale = np.maximum(1.0, np.abs(theirs))
    return float(np.max(np.abs(np.asarray(ours) - theirs) / scale))


def _summary(errors, paths: list[Path]) -> dict[str, Any]:
    starts, forced, free = errors
    parted = [_parted(run) for run in free]
    together = [e for run, end in zip(free, parted) for e in run[:end]]
    steps = [e for run in forced for e in run]
    worst: dict[str, float] = {}
    for e in steps:
        for term, value in e.terms.items():
            worst[term] = max(worst.get(term, 0.0), value)
    term = max(worst, key=worst.__getitem__)
    at = [str(end + 1) for end in parted if end is not None]
    alike = all(e.alike for e in together + steps)
    most = lambda values: max(values, default=0.0)
    return {
        "reset": max(starts),
        "alone: obs": most(e.obs for e in together),
        "alone: reward": most(e.reward for e in together),
        "part at": ", ".join(at) or "never",
        "one step: obs": most(e.obs for e in steps),
        "one step: reward": most(e.reward for e in steps),
        "worst term": f"{term} {worst[term]:.1e}",
        "ends alike": "yes" if alike else "no",
    }


def _parted(run: list[Error]) -> int | None:
    """Return the first step with a difference beyond the tolerance."""
    return next((t for t, e in enumerate(run) if not e.largest <= TOLERANCE), None)


def _late(path: Path, other: Path) -> tuple[list[float], list[float]]:
    """Return differences of observation and reward between two runs of Gymnasium."""
    obs = [_relative(b, a) for a, b in zip(path.obs, other.obs)]
    rewards = [_relative(b, a) for a, b in zip(path.rewards, other.rewards)]
    return obs[1:], rewards


def report(where: dict, rows: list[dict], options: argparse.Namespace) -> str:
    """Return the table with an explanation, in Markdown."""
    text = EXPLANATION.format(
        seeds=options.seeds, steps=options.steps, tolerance=TOLERANCE
    )
    title = "# Parity with Gymnasium's environments"
    bad = [row["environment"] for row in rows if not _agrees(row)]
    says = f"These disagree: {', '.join(bad)}." if bad else "No environment disagrees."
    return f"{title}\n\n{text}\n\n{table(rows)}\n\n{says}\n\n{caption(where)}\n"


def _options() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = made.add_argument
    add("--envs", nargs="*", default=list(IDS), choices=list(IDS))
    add("--seeds", type=int, default=5, help="random starts of each")
    add("--seed", type=int, default=0, help="the first of them")
    add("--steps", type=int, default=200)
    add("--precision", choices=("double",), default="double")
    add("--json", type=pathlib.Path)
    add("--markdown", type=pathlib.Path)
    options = made.parse_args()
    if options.seeds < 1 or options.steps < 1:
        made.error("--seeds and --steps must be positive")
    return options
