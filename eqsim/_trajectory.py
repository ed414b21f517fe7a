"""Results of a rollout, statistics of its episodes, and the report on states that are not
finite.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from ._errors import RESULTS
from .dynamics import kinetic_energy, potential_energy
from .envs import Timestep
from .model import check_state, State, System
from .pipelines import AbstractPipeline, Generalized


class Episodes(eqx.Module):
    """Running statistics of the episodes in a rollout: at each step, those of the
    current episode up to this step. The axes are those of the rollout.

    **Arguments:**

    - `ended`: true if an episode ended with this step, so that the other values are
        those of a complete episode.
    - `returns`: sum of rewards.
    - `length`: number of steps.
    - `terms`: sum of each reward term.

    The first episode starts at the beginning of the rollout. Without `AutoReset`, each
    step after the end of an episode that still terminates counts as an episode;
    `rollout(..., stop=lambda timestep: timestep.done)` excludes them.
    """

    ended: Bool[Array, "..."]
    returns: Float[Array, "..."]
    length: Int[Array, "..."]
    terms: dict[str, Float[Array, "..."]]

    def mean(self) -> dict[str, float]:
        """Average over all episodes that ended: `return`, `length`, every reward term,
        and `episodes`, their number. Averages are NaN if no episode ended."""
        ended = np.asarray(self.ended)
        number = int(ended.sum())
        average = lambda x: (
            float(np.asarray(x)[ended].mean()) if number else float("nan")
        )
        sums = {"return": self.returns, "length": self.length} | self.terms
        return {name: average(x) for name, x in sums.items()} | {"episodes": number}


def episodes(timestep: Timestep, valid: Bool[Array, "..."] | None = None) -> Episodes:
    """Compute statistics of the episodes in a rollout.

    **Arguments:**

    - `timestep`: timesteps of a rollout; time is the last axis of the rewards.
    - `valid`: true for steps that were taken; by default all. See `Trajectory`.
    """
    taken = jnp.ones(timestep.reward.shape, bool) if valid is None else valid
    counts = taken & ~timestep.first
    ended = counts & timestep.done
    sums = {"": timestep.reward, **timestep.terms}

    def step(carry, now):
        fresh, length, totals = carry
        counts, ended, values = now
        length = jnp.where(fresh, 0, length) + counts.astype(jnp.int32)
        add = lambda total, x: jnp.where(fresh, 0.0, total) + jnp.where(counts, x, 0.0)
        totals = jtu.tree_map(add, totals, values)
        return (ended, length, totals), (length, totals)

    first = lambda x: jnp.moveaxis(x, -1, 0)
    xs = jtu.tree_map(first, (counts, ended, sums))
    batch = xs[0].shape[1:]
    zeros = jtu.tree_map(lambda x: jnp.zeros(batch, x.dtype), sums)
    begin = jnp.ones(batch, bool), jnp.zeros(batch, jnp.int32), zeros
    _, out = lax.scan(step, begin, xs)
    length, totals = jtu.tree_map(lambda x: jnp.moveaxis(x, 0, -1), out)
    return Episodes(ended, totals.pop(""), length, totals)


class Trajectory(eqx.Module):
    """The results of a rollout. The axes are those of the environments, then time.

    **Arguments:**

    - `state`: state of the environment before each step.
    - `obs`: observation of the policy before each step.
    - `action`: action of each step.
    - `timestep`: timestep returned by each step.
    - `valid`: true if the step was taken; false after the stop condition was met.
    - `last`: state and timestep after the last step, and the memory of the policy if
        that is a controller, without the time axis; `rollout(...,
        start=trajectory.last)` continues from there.
    - `result`: outcome: successful, or which values were first not finite.
    - `failed_step`: first step with a value that is not finite; -1 if there is none.
    """

    state: Any
    obs: PyTree[Shaped[Array, "..."]]
    action: Float[Array, "..."]
    timestep: Timestep
    valid: Bool[Array, "..."]
    last: tuple[Any, Timestep] | tuple[Any, Timestep, Any]
    result: RESULTS
    failed_step: Int[Array, "..."]

    @property
    def reward(self) -> Float[Array, "..."]:
        """Reward of each step, the same as `timestep.reward`. After the stop condition was
        met, steps are not `valid` and repeat the last reward."""
        return self.timestep.reward

    def episodes(self) -> Episodes:
        """Compute return, length and reward terms of the episodes."""
        return episodes(self.timestep, self.valid)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Report of `diagnose`; `print` shows it. All arrays have the batch axes of the states.

    **Arguments:**

    - `finite`: true for states that are finite.
    - `converged`: true where the constraint solver converges; see `Solved.converged`.
    - `penetration`: deepest penetration of two shapes, m; 0 without contact.
    - `speed`: largest joint velocity, rad/s or m/s.
    - `acceleration`: largest joint acceleration, rad/s$^2$ or m/s$^2$.
    - `energy`: kinetic and potential energy of rigid bodies, J.
    - `lines`: the same in words, one line each.
    """

    finite: Bool[np.ndarray, "*batch"]
    converged: Bool[np.ndarray, "*batch"]
    penetration: Float[np.ndarray, "*batch"]
    speed: Float[np.ndarray, "*batch"]
    acceleration: Float[np.ndarray, "*batch"]
    energy: Float[np.ndarray, "*batch"]
    lines: tuple[str, ...]

    @property
    def good(self) -> bool:
        """True if all states are finite and the solver converges in each."""
        return bool(np.all(self.finite & self.converged))

    def __str__(self) -> str:
        return "\n".join(self.lines)


def diagnose(
    sys: System,
    state: State,
    ctrl: Float[Array, "*batch nu"] | None = None,
    *,
    pipeline: AbstractPipeline | None = None,
) -> Diagnosis:
    """Examine states: a compiled step reports neither a solver that does not converge nor
    a deep penetration.

    ```python
    trajectory = eqsim.rollout(env, policy, jr.key(0), length=1000)
    print(eqsim.diagnose(env.sys, env.physics(trajectory.state), trajectory.action))
    ```

    **Arguments:**

    - `sys`: the robot.
    - `state`: states with any batch axes.
    - `ctrl`: input of the actuators, with the same axes; zero by default.
    - `pipeline`: the physics; `Generalized()` by default.

    **Raises:** `ValueError` if shapes do not fit the robot, or there are no states.
    """
    batch = state.q.shape[:-1]
    if ctrl is None:
        ctrl = jnp.zeros((*batch, sys.nu), state.q.dtype)
    axes = {"qd": state.qd, "act": state.act, "ctrl": ctrl}
    for name, x in axes.items():
        if x.shape[:-1] != batch:
            raise ValueError(
                f"`{name}` has batch axes {x.shape[:-1]}, but `q` has {batch}. Give "
                "both the same batch axes."
            )
    if 0 in batch:
        raise ValueError(f"At least one state is expected, got batch axes {batch}.")
    pipeline = Generalized() if pipeline is None else pipeline
    number = int(np.prod(batch, dtype=int))
    row = lambda x: x.reshape(number, *x.shape[len(batch) :])
    rows = jax.tree_util.tree_map(row, (state, ctrl))
    first, u = jax.tree_util.tree_map(lambda x: x[0], rows)
    check_state(sys, first.q, first.qd, u, first.act)
    found = [np.asarray(x) for x in _examined(pipeline, sys, *rows)]
    lines = _lines(sys, batch, found)
    finite, converged, depth, speed, acceleration, energy = (
        x.reshape(batch) for x in found[:6]
    )
    return Diagnosis(
        finite, converged, depth, speed, acceleration, energy, tuple(lines)
    )


@eqx.filter_jit
def _examined(pipeline, sys, states, ctrls):
    def one(state, ctrl):
        solved = pipeline.solve(sys, state, ctrl)
        parts = state.q, state.qd, state.act
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in parts]))
        # Contacts are sorted by depth; this row stands for none.
        none = jnp.zeros(1, state.q.dtype)
        deepest = jnp.concatenate([-solved.contacts.dist[:1], none])[0]
        deepest = jnp.maximum(deepest, 0.0)
        pair = jnp.concatenate([solved.contacts.geoms, jnp.full((1, 2), -1)])[0]
        most = lambda x: jnp.max(jnp.concatenate([jnp.abs(x), none]))
        which = lambda x: jnp.argmax(jnp.concatenate([x, none - jnp.inf]))
        energy = kinetic_energy(sys, state.q, state.qd) + potential_energy(sys, state.q)
        values = deepest, most(state.qd), most(solved.qdd), energy
        at = pair, which(jnp.abs(state.qd)), which(jnp.abs(solved.qdd))
        return finite, solved.converged, *values, *at

    return jax.vmap(one)(states, ctrls)


def _lines(sys: System, batch: tuple[int, ...], found) -> list[str]:
    finite, converged, depth, speed, acceleration, energy, pair, fast, pushed = found
    dofs = []
    for name, kind in zip(sys.joints.names, sys.joints.kinds, strict=True):
        dofs += [repr(name)] * kind.nv
    number, where = finite.size, lambda k: _where(batch, int(k))
    lines = [f"{number} state{'s' * (number > 1)} of {sys.nq} coordinates"]
    lines.append(_counted("are not finite", ~finite, where))
    failed = ~converged & finite
    lines.append(_counted("have a solver that does not converge", failed, where))
    known = np.flatnonzero(finite)
    if not known.size:
        return lines
    at = known[np.argmax(depth[known])]
    if depth[at] > 0.0:
        names = (repr(sys.geoms.names[k] or f"geom {k}") for k in pair[at])
        touching = " and ".join(names)
        lines.append(f"deepest penetration {depth[at]:.2g} m, {touching}{where(at)}")
    else:
        lines.append("no contact")
    measured = (
        ("velocity", speed, fast, "m/s or rad/s"),
        ("acceleration", acceleration, pushed, "m/s^2 or rad/s^2"),
    )
    for name, values, index, unit in measured if dofs else ():
        at = known[np.argmax(values[known])]
        joint = dofs[min(index[at], len(dofs) - 1)]
        lines.append(f"largest {name} {values[at]:.3g} {unit}, {joint}{where(at)}")
    low, high = energy[known].min(), energy[known].max()
    lines.append(f"energy from {low:.4g} to {high:.4g} J")
    return lines


def _counted(what: str, bad, where) -> str:
    first = where(np.flatnonzero(bad)[0]) if np.any(bad) else ""
    return f"{np.count_nonzero(bad)} {what}" + (f", the first{first}" if first else "")


def _where(batch: tuple[int, ...], row: int) -> str:
    if not batch:
        return ""
    index = ", ".join(str(int(k)) for k in np.unravel_index(row, batch))
    return f" at [{index}]"
