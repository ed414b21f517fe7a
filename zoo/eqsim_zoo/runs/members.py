"""Several agents trained in one program."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Int, Key

from eqsim import AbstractAgent, AbstractEnv, AbstractOnlineAgent
from eqsim.bridges import check_count, check_type
from eqsim.wrappers import nested_envs, PooledResets

from ..blocks.collecting import member_key
from ..data.dataset import Dataset
from .fields import describe


class MemberEnvs(eqx.Module):
    """Environments of several members that differ in their pools of resets.

    **Arguments:**

    - `varied`: environment with the pools, which have a leading member axis.
    - `shared`: environment with everything else.
    """

    varied: AbstractEnv
    shared: AbstractEnv


class Members(eqx.Module):
    """Agents that differ only in array values, each with one or several seeds. Members are
    ordered by agent, then by seed.

    **Arguments:**

    - `varied`: agent with the arrays that differ, with a leading member axis.
    - `shared`: agent with everything else.
    - `seeds`: seed of each member.
    - `many`: true if there is a member axis; false for one agent with one seed.
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
        """Map `f(agent, *args)` over members; arrays in `args` have a member axis. A
        single member has no such axis."""
        if not self.many:
            return f(eqx.combine(self.varied, self.shared), *args)
        run = lambda varied, *args: f(eqx.combine(varied, self.shared), *args)
        return eqx.filter_vmap(run)(self.varied, *args)

    def each_in(self, source: Any, f: Callable[..., Any], *args: Any) -> Any:
        """Map `f(agent, source, *args)` over members, see `each`; of `MemberEnvs`, each
        gets its own environment."""
        if not isinstance(source, MemberEnvs):
            return self.each(lambda agent, *args: f(agent, source, *args), *args)
        run = lambda agent, varied, *args: f(
            agent, eqx.combine(varied, source.shared), *args
        )
        return self.each(run, source.varied, *args)

    def envs(self, make: Callable[[int], AbstractEnv]) -> Any:
        """Return `make(seed)` for the seeds of all members: one environment if there is
        one seed or no pool of resets, else `MemberEnvs`."""
        numbers = sorted({*self.seeds})
        envs = [make(seed) for seed in numbers]
        if len(envs) == 1 or not _pools(envs[0]):
            return envs[0]
        rows = np.searchsorted(numbers, self.seeds)
        stack = lambda *pools: jnp.stack([pools[row] for row in rows])
        pools = jtu.tree_map(stack, *map(_pools, envs))
        whole = eqx.tree_at(_pools, envs[0], pools)
        mask = eqx.tree_at(
            _pools,
            jtu.tree_map(lambda _: False, whole),
            jtu.tree_map(lambda _: True, pools),
        )
        return MemberEnvs(*eqx.partition(whole, mask))

    def agent(self, member: int) -> AbstractOnlineAgent:
        """Return the agent of one member."""
        return eqx.combine(self.pick(self.varied, member), self.shared)

    def pick(self, tree: Any, member: int | Int[Array, ""]) -> Any:
        """Select one member from arrays with a member axis."""
        if not self.many:
            return tree
        return jtu.tree_map(lambda x: x[member] if eqx.is_array(x) else x, tree)

    def keys(self) -> Key[Array, "..."]:
        """Return the keys for `agent.init`, one per member."""
        keys = [member_key(seed) for seed in self.seeds]
        return jnp.stack(keys) if self.many else keys[0]

    def init(self, env: AbstractEnv | MemberEnvs | Dataset) -> Any:
        """Return the initial states of all members."""
        state = _init(self, env, self.keys())
        # Aliased buffers cannot be donated.
        return jtu.tree_map(lambda x: jnp.copy(x) if eqx.is_array(x) else x, state)

    def skeleton(self, env: AbstractEnv | MemberEnvs | Dataset) -> Any:
        """Return shapes and types of the result of `init`, without computing it.

        **Raises:** `ValueError` if an agent does not support the values of the environment,
        which are known only here.
        """
        start = lambda members, keys: _start(members, env, keys)
        return eqx.filter_eval_shape(start, self, self.keys())

    def labels(self) -> list[dict[str, Any]]:
        """Return, for each member, its seed and the fields in which members differ."""
        fields = [describe(self.agent(member)) for member in range(self.count)]
        differs = lambda name: any(f[name] != fields[0][name] for f in fields)
        names = [name for name in fields[0] if differs(name)]
        own = [{name: f[name] for name in names} for f in fields]
        return [{"seed": seed, **label} for seed, label in zip(self.seeds, own)]

    def name(self, member: int) -> str:
        """Return a description of a member, for messages."""
        label = self.labels()[member]
        return f"member {member} ({', '.join(f'{k} {v}' for k, v in label.items())})"


def _start(
    members: Members, env: AbstractEnv | MemberEnvs | Dataset, keys: Key[Array, "..."]
) -> Any:
    return members.each_in(env, lambda agent, env, key: agent.init(key, env), keys)


_init = eqx.filter_jit(_start)


def _pools(env: AbstractEnv) -> list[Any]:
    return [x.starts for x in nested_envs(env) if isinstance(x, PooledResets)]


def agents_given(agent: Any) -> list[AbstractAgent]:
    """Return one agent, or several, as a list.

    **Raises:** `TypeError` if one is not an agent.
    """
    several = isinstance(agent, Iterable) and not isinstance(agent, str)
    agents: list[Any] = [*agent] if several else [agent]
    for k, one in enumerate(agents):
        name = f"agent[{k}]" if several else "agent"
        check_type(name, one, AbstractAgent, "an agent", "Create one, such as `PPO()`.")
    return agents


def members_of(
    agents: AbstractAgent | Sequence[AbstractAgent],
    seed: int,
    num_seeds: int,
) -> Members:
    """Return members for one or several agents, each with the seeds from `seed` to
    `seed + num_seeds - 1`.

    **Raises:** `ValueError` if the agents differ in more than array values, so that they
    cannot share a program, or one has no `iterate`; `TypeError` if one is not an agent.
    """
    online: list[AbstractOnlineAgent] = []
    for agent in agents_given(agents):
        if not isinstance(agent, AbstractOnlineAgent):
            raise ValueError(
                f"{agent!r} has no `iterate`, so it cannot be trained in an environment "
                "alone. Pass a dataset (`data`)."
            )
        online.append(agent)
    check_count("num_seeds", num_seeds)
    if not online:
        raise ValueError("Got no agents; expected at least one.")
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
    """Raise `ValueError` unless two agents differ only in array values."""
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
            arrays = all(eqx.is_array(x) for x in pair)
            if not arrays and not bool(eqx.tree_equal(*pair)):
                names.append(f"`{field.name}` ({pair[0]} and {pair[1]})")
    raise ValueError(
        f"Agents of one program may differ only in array values, but differ in "
        f"{', '.join(names) or 'their types'}. Train them in separate runs."
    )


def own_copy(state: Any) -> Any:
    """Return a copy of a state, whose memory the next turn does not reuse."""
    copy = lambda x: jnp.copy(x) if eqx.is_array(x) else x
    return jtu.tree_map(copy, state)
