"""Several agents that learn side by side in one program."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Int, Key

from eqsim import AbstractAgent, AbstractEnv, AbstractOnlineAgent

from ..blocks._environments import member_key
from ..data import Dataset
from ._settings import describe


class Members(eqx.Module):
    """Agents that differ in numbers, each with one or several seeds: one agent after the
    other, with all its seeds.

    **Arguments:**

    - `varied`, `shared`: the agents: what differs, with an axis of members, and the rest.
    - `seeds`: of each member.
    - `many`: true if there is an axis of members; not so for one agent with one seed.
    """

    varied: AbstractOnlineAgent
    shared: AbstractOnlineAgent
    seeds: tuple[int, ...] = eqx.field(static=True)
    many: bool = eqx.field(static=True)

    @property
    def count(self) -> int:
        """Number of members."""
        return len(self.seeds)

    def each(self, f: Callable[..., Any], *args: Any) -> Any:
        """`f(agent, *args)` of every member; arrays among `args` have an axis of members.
        For one member by itself there is no such axis."""
        if not self.many:
            return f(eqx.combine(self.varied, self.shared), *args)
        run = lambda varied, *args: f(eqx.combine(varied, self.shared), *args)
        return eqx.filter_vmap(run)(self.varied, *args)

    def agent(self, member: int) -> AbstractOnlineAgent:
        """One agent by itself."""
        return eqx.combine(self.pick(self.varied, member), self.shared)

    def pick(self, tree: Any, member: int | Int[Array, ""]) -> Any:
        """Return the part of one member of arrays with an axis of members."""
        if not self.many:
            return tree
        return jtu.tree_map(lambda x: x[member] if eqx.is_array(x) else x, tree)

    def keys(self) -> Key[Array, "..."]:
        """Of `agent.init`, one per member."""
        keys = [member_key(seed) for seed in self.seeds]
        return jnp.stack(keys) if self.many else keys[0]

    def init(self, env: AbstractEnv | Dataset) -> Any:
        """The states of all members, before anything is learned."""
        state = _init(self, env, self.keys())
        # Two names for one array: it could not be given away twice.
        return jtu.tree_map(lambda x: jnp.copy(x) if eqx.is_array(x) else x, state)

    def skeleton(self, env: AbstractEnv | Dataset) -> Any:
        """Shapes and types of `init`, which is not computed."""
        return eqx.filter_eval_shape(_init, self, env, self.keys())

    def labels(self) -> list[dict[str, Any]]:
        """What tells members apart, by name: seed and fields."""
        fields = [describe(self.agent(member)) for member in range(self.count)]
        differs = lambda name: any(f[name] != fields[0][name] for f in fields)
        names = [name for name in fields[0] if differs(name)]
        own = [{name: f[name] for name in names} for f in fields]
        return [{"seed": seed, **label} for seed, label in zip(self.seeds, own)]

    def name(self, member: int) -> str:
        """A member in words, within a sentence."""
        label = self.labels()[member]
        return f"member {member} ({', '.join(f'{k} {v}' for k, v in label.items())})"


@eqx.filter_jit
def _init(members: Members, env: AbstractEnv | Dataset, keys: Key[Array, "..."]) -> Any:
    return members.each(lambda agent, key: agent.init(key, env), keys)


def members_of(
    agents: AbstractAgent | Sequence[AbstractAgent],
    seed: int,
    num_seeds: int,
) -> Members:
    """One agent or several, each with `num_seeds` seeds from `seed` on.

    **Raises:** `ValueError` if the agents differ in anything but numbers, as then they are
    not one program; `TypeError` if one is no agent or has no `iterate`.
    """
    online: list[AbstractOnlineAgent] = []
    for agent in [agents] if isinstance(agents, AbstractAgent) else agents:
        if not isinstance(agent, AbstractAgent):
            raise TypeError(
                f"A `{type(agent).__name__}` among the agents is no `AbstractAgent`."
            )
        if not isinstance(agent, AbstractOnlineAgent):
            raise TypeError(
                f"{agent!r} cannot be trained in an environment alone, as it has no "
                "`iterate`: pass a recording that it learns from (`data`)."
            )
        online.append(agent)
    if not online or num_seeds < 1:
        raise ValueError(
            f"{len(online)} agents with {num_seeds} seeds: at least one of each is needed."
        )
    for agent in online[1:]:
        _check_alike(online[0], agent)
    leaves = [jtu.tree_leaves(agent) for agent in online]
    treedef = jtu.tree_structure(online[0])
    columns = [*zip(*leaves)]
    differs = [_differs(column) for column in columns]
    repeat = lambda x: jnp.repeat(x, num_seeds, axis=0)
    rows = [repeat(jnp.stack(c)) if d else c[0] for c, d in zip(columns, differs)]
    whole = jtu.tree_unflatten(treedef, rows)
    mask = jtu.tree_unflatten(treedef, differs)
    varied, shared = eqx.partition(whole, mask)
    seeds = tuple(seed + k for k in range(num_seeds)) * len(online)
    return Members(varied, shared, seeds, len(seeds) > 1)


def _differs(column: tuple) -> bool:
    if not isinstance(column[0], jax.Array):
        return False
    first = np.asarray(column[0])
    return any(not np.array_equal(first, np.asarray(x)) for x in column[1:])


def _check_alike(first: AbstractOnlineAgent, other: AbstractOnlineAgent) -> None:
    """Raises `ValueError` unless two agents differ in numbers only."""
    alike = (
        eqx.filter(first, eqx.is_array, inverse=True),
        eqx.filter(other, eqx.is_array, inverse=True),
    )
    shapes = [
        [
            (jnp.shape(x), jnp.result_type(x))
            for x in jtu.tree_leaves(a)
            if eqx.is_array(x)
        ]
        for a in (first, other)
    ]
    if bool(eqx.tree_equal(*alike)) and shapes[0] == shapes[1]:
        return
    names = []
    if type(first) is type(other):
        for field in dataclasses.fields(first):
            pair = vars(first)[field.name], vars(other)[field.name]
            numbers = all(eqx.is_array(x) for x in pair)
            if not numbers and not bool(eqx.tree_equal(*pair)):
                names.append(f"`{field.name}` ({pair[0]} and {pair[1]})")
    raise ValueError(
        f"Agents of one program differ in {', '.join(names) or 'their types'}, but only "
        "numbers can differ: sizes and choices need a run of their own."
    )
