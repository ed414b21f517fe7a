"""Evolution strategies of evosax as an agent."""

import contextlib
import dataclasses
import enum
import functools
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import optax
from evosax.algorithms import ARS, CMA_ES, Open_ES, PGPE
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import RunningStatistics
from eqsim_zoo.blocks.collecting import add_steps, check_observations
from eqsim_zoo.blocks.hyperparameters import (
    as_scalar,
    check_positive,
    check_ranges,
    static,
)
from eqsim_zoo.blocks.networks import Linear, MLP
from eqsim_zoo.blocks.observations import acts_on_batches, init_statistics, normalize
from eqsim_zoo.blocks.parallel import check_divisible
from eqsim_zoo.blocks.policies import (
    check_action_bounds,
    DeterministicPolicy,
    scale_action,
)
from eqsim_zoo.blocks.populations import evaluate_policies


class Strategy(enum.Enum):
    """Algorithm that updates the distribution of the parameters."""

    CMA_ES = "cma_es"
    OPEN_ES = "open_es"
    PGPE = "pgpe"
    ARS = "ars"


_CLASSES = {
    Strategy.CMA_ES: CMA_ES,
    Strategy.OPEN_ES: Open_ES,
    Strategy.PGPE: PGPE,
    Strategy.ARS: ARS,
}


class Search(eqx.Module):
    """An algorithm of evosax for parameter vectors of one size.

    **Arguments:**

    - `strategy`: the algorithm.
    - `population`: number of candidates per generation.
    - `size`: number of parameters.
    - `noise`: standard deviation of the parameters; the initial one if the algorithm
        adapts it.
    - `learning_rate`: Adam step size of the mean.
    - `std_learning_rate`: step size of the standard deviations.
    """

    strategy: Strategy = eqx.field(static=True)
    population: int = eqx.field(static=True)
    size: int = eqx.field(static=True)
    noise: Float[Array, ""]
    learning_rate: Float[Array, ""]
    std_learning_rate: Float[Array, ""]

    def init(self, mean: Float[Array, " size"], key: PRNGKeyArray) -> Any:
        """Create the state of the distribution with a given mean."""
        with _default_promotion():
            state = self._algorithm.init(key, mean, self._params)
        # evosax begins with NaN and infinity; states of agents are finite.
        largest = jnp.finfo(mean.dtype).max
        state = state.replace(best_solution=mean, best_fitness=largest)
        return _strong(self._with_settings(state), mean.dtype)

    def ask(
        self, key: PRNGKeyArray, state: Any
    ) -> tuple[Float[Array, "population size"], Any]:
        """Sample candidates.

        **Returns:** their parameters, and the state for `tell`.
        """
        dtype, state = state.mean.dtype, self._with_settings(state)
        with _default_promotion():
            parameters, state = self._algorithm.ask(key, state, self._params)
        return parameters, _strong(state, dtype)

    def tell(
        self,
        key: PRNGKeyArray,
        parameters: Float[Array, "population size"],
        returns: Float[Array, " population"],
        state: Any,
    ) -> Any:
        """Update the distribution with the returns of candidates.

        A return that is not finite counts as the least finite one, as some algorithms
        compute with returns and not with ranks.
        """
        dtype, state = state.mean.dtype, self._with_settings(state)
        finite = jnp.isfinite(returns)
        worst = jnp.min(returns, where=finite, initial=jnp.inf)
        worst = jnp.where(jnp.any(finite), worst, 0.0)
        # evosax minimizes.
        fitness = -jnp.where(finite, returns, worst).astype(dtype)
        with _default_promotion():
            state, _ = self._algorithm.tell(
                key, parameters.astype(dtype), fitness, state, self._params
            )
        return _strong(self._with_settings(state), dtype)

    def deviations(self, state: Any) -> Float[Array, " size"]:
        """Return the standard deviation of each parameter."""
        if self.strategy is Strategy.CMA_ES:
            return state.std * jnp.sqrt(jnp.diag(state.C))
        return jnp.broadcast_to(state.std, state.mean.shape)

    @property
    def _algorithm(self) -> Any:
        dtype = jnp.result_type(float)
        return _algorithm(self.strategy, self.population, self.size, dtype)

    @property
    def _params(self) -> Any:
        params = self._algorithm.default_params
        if self.strategy is Strategy.CMA_ES:
            return params.replace(std_init=self.noise)
        if self.strategy is Strategy.PGPE:
            return params.replace(std_init=self.noise, std_lr=self.std_learning_rate)
        return params

    def _with_settings(self, state: Any) -> Any:
        """Write settings that evosax takes when the algorithm is created into its state,
        where they can be arrays."""
        if self.strategy in (Strategy.OPEN_ES, Strategy.ARS):
            state = state.replace(std=self.noise)
        if self.strategy is Strategy.CMA_ES:
            return state
        old = state.opt_state
        rates = dict(old.hyperparams, learning_rate=self.learning_rate)
        return state.replace(opt_state=old._replace(hyperparams=rates))


@functools.cache
def _algorithm(strategy: Strategy, population: int, size: int, dtype: Any) -> Any:
    """Create an algorithm once, as evosax compiles its methods for each object."""
    with jax.ensure_compile_time_eval(), _default_promotion():
        solution = jnp.zeros(size, dtype)
        if strategy is Strategy.CMA_ES:
            return CMA_ES(population, solution)
        # The rate is then part of the optimizer's state; `_with_settings` replaces it.
        adam = optax.inject_hyperparams(optax.adam)(learning_rate=1.0)
        return _CLASSES[strategy](population, solution, optimizer=adam)


def _strong(state: Any, dtype: Any) -> Any:
    """Give all arrays their own type, as weak types recompile."""

    def own(x):
        kind = jnp.int32 if jnp.issubdtype(jnp.result_type(x), jnp.integer) else dtype
        return jax.lax.convert_element_type(x, kind)

    return jtu.tree_map(own, state)


@contextlib.contextmanager
def _default_promotion() -> Iterator[None]:
    """Let evosax promote ranks and types, also for users who forbid it."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def _strategy(value: Any) -> Any:
    """Convert a name to a `Strategy`; placeholders of tree transformations pass."""
    if not isinstance(value, str):
        return value
    names = [x.value for x in Strategy]
    if value not in names:
        raise ValueError(
            f"`EvolutionStrategy.strategy` must be one of {', '.join(names)}, got "
            f"{value!r}."
        )
    return Strategy(value)


class EvolutionState(eqx.Module):
    """State of `EvolutionStrategy`: evosax's state of the distribution (`search`), running
    `statistics` of observations, action range `bounds`, `key` of the next iteration,
    number of control `steps`, and layer `sizes` of the policy."""

    search: Any
    statistics: RunningStatistics | None
    bounds: Float[Array, "nu 2"]
    key: PRNGKeyArray
    steps: Int[Array, ""]
    sizes: tuple[int, ...] = eqx.field(static=True)


class Candidates(eqx.Module):
    """Batch of `EvolutionStrategy.update`.

    **Arguments:**

    - `parameters`: parameters of the candidates.
    - `returns`: mean return of each candidate.
    """

    parameters: Float[Array, "population size"]
    returns: Float[Array, " population"]


class EvolutionStrategy(AbstractOnlineAgent):
    r"""Evolution strategies of evosax: samples parameters of policies, and moves the
    distribution towards those with larger returns.

    Parameters of a multilayer perceptron are sampled from a normal distribution with mean
    $\mu$. All candidates of a generation run the same episodes. No derivatives are used.

    | `strategy` | distribution | update |
    |---|---|---|
    | `cma_es` | full covariance | ranks; mean, covariance and step size adapt |
    | `open_es` | $\sigma^2 I$, constant | ranks; Adam |
    | `pgpe` | diagonal covariance | ranks; Adam for $\mu$, deviations adapt |
    | `ars` | $\sigma^2 I$, constant | returns of the best half of the directions; Adam |

    All but `cma_es` sample antithetic pairs $\mu \pm \sigma \epsilon$. The covariance of
    `cma_es` has one row and one column per parameter, and is decomposed in every
    iteration: use it with at most about a thousand parameters.

    Differences from the papers: observations are normalized by running statistics;
    actions are $\tanh$ of the outputs, scaled to the action range; steps of `pgpe` and
    `ars` are those of Adam.

    **Arguments:**

    - `strategy`: algorithm, a `Strategy` or its value.
    - `population`: number of candidates per generation, even and at least 4.
    - `num_episodes`: number of episodes per candidate.
    - `episode_length`: time limit of an episode in control steps.
    - `hidden`: hidden layer sizes of the policy; empty for a linear policy.
    - `normalize_observations`: true if observations are normalized.
    - `noise`: standard deviation $\sigma$ of the parameters; the initial one for `cma_es`
        and `pgpe`.
    - `learning_rate`: Adam step size of $\mu$; not used by `cma_es`.
    - `std_learning_rate`: step size of the deviations of `pgpe`.

    ??? cite "Reference"
        Lange, *evosax: JAX-based evolution strategies*, 2022. Hansen, *The CMA evolution
        strategy: a tutorial*, 2016. Salimans et al., *Evolution strategies as a scalable
        alternative to reinforcement learning*, 2017. Sehnke et al., *Parameter-exploring
        policy gradients*, 2010. Mania, Guy, Recht, *Simple random search of static linear
        policies is competitive for reinforcement learning*, 2018.
    """

    strategy: Strategy = eqx.field(
        static=True, converter=_strategy, default=Strategy.CMA_ES
    )
    population: int = static(64)
    num_episodes: int = static(1)
    episode_length: int = static(1000)
    hidden: tuple[int, ...] = static((16,))
    normalize_observations: bool = static(True)
    noise: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.1)
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.02)
    std_learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.1)

    def __check_init__(self):
        check_positive(self, "population", "num_episodes", "episode_length", "hidden")
        check_ranges(self, "noise", "std_learning_rate")
        if self.population < 4 or self.population % 2:
            raise ValueError(
                "`EvolutionStrategy.population` must be an even number of at least 4, got "
                f"{self.population}."
            )

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> EvolutionState:
        check_observations(self, env)
        check_action_bounds(self, env)
        check_divisible(self, "population")
        key, key_policy, key_search = jr.split(key, 3)
        _, timestep = eqx.filter_eval_shape(lambda e, k: e.reset(k), env, key)
        obs = timestep.obs
        sizes = (obs.shape[0], *self.hidden, env.sys.nu)
        dtype = jnp.result_type(float)
        network = MLP.create(key_policy, sizes, jnp.tanh, dtype=dtype)
        parts = [part.ravel() for x in network.layers for part in (x.weight, x.bias)]
        mean = jnp.concatenate(parts)
        return EvolutionState(
            self._search(mean.size).init(mean, key_search),
            init_statistics(obs) if self.normalize_observations else None,
            # A copy, as the state may be donated and the system not.
            jnp.array(env.action_range),
            key,
            jnp.zeros((), jnp.int32),
            sizes,
        )

    @acts_on_batches
    def act(
        self, state: EvolutionState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        """Compute the action of the mean parameters, or with a key that of parameters
        with independent noise of the deviations of the distribution."""
        mean = state.search.mean
        if key is not None:
            deviations = self._search(mean.size).deviations(state.search)
            mean = mean + deviations * jr.normal(key, mean.shape, mean.dtype)
        policy = _policy(state, mean)
        return scale_action(state.bounds, policy(normalize(state.statistics, obs)))

    def iterate(
        self, state: EvolutionState, env: AbstractEnv
    ) -> tuple[EvolutionState, dict[str, Float[Array, "..."]]]:
        """Run the episodes of one generation, and update the distribution."""
        key, key_ask, key_try, key_update = jr.split(state.key, 4)
        algorithm = self._search(state.search.mean.size)
        parameters, search = algorithm.ask(key_ask, state.search)
        # The same episodes for all candidates.
        keys = jr.split(key_try, self.num_episodes)
        keys = jnp.broadcast_to(keys, (self.population, self.num_episodes))
        returns, statistics, report = evaluate_policies(
            env,
            jax.vmap(lambda x: _policy(state, x))(parameters),
            state.statistics,
            keys,
            self.episode_length,
        )
        state = dataclasses.replace(
            state,
            search=search,
            statistics=statistics,
            key=key_update,
            steps=add_steps(report, state.steps),
        )
        batch = Candidates(parameters, jnp.mean(returns, axis=1))
        state, metrics = self.update(state, batch)
        return dataclasses.replace(state, key=key), report | metrics

    def update(
        self, state: EvolutionState, batch: Candidates
    ) -> tuple[EvolutionState, dict[str, Float[Array, "..."]]]:
        """Update the distribution with `Candidates`.

        **Returns:** the new state; metrics `best`, the largest return, and `deviation`,
        the root mean square of the standard deviations of the parameters.
        """
        algorithm = self._search(state.search.mean.size)
        key, key_tell = jr.split(state.key)
        search = algorithm.tell(key_tell, batch.parameters, batch.returns, state.search)
        deviation = jnp.sqrt(jnp.mean(algorithm.deviations(search) ** 2))
        new = dataclasses.replace(state, search=search, key=key)
        return new, {"best": jnp.max(batch.returns), "deviation": deviation}

    def _search(self, size: int) -> Search:
        dtype = jnp.result_type(float)
        rates = self.noise, self.learning_rate, self.std_learning_rate
        rates = [x.astype(dtype) for x in rates]
        return Search(self.strategy, self.population, size, *rates)


def _policy(
    state: EvolutionState, parameters: Float[Array, " size"]
) -> DeterministicPolicy:
    """Build the policy from its parameters: weights and bias of one layer after the
    other."""
    layers, at, dtype = [], 0, state.bounds.dtype
    for inputs, outputs in zip(state.sizes[:-1], state.sizes[1:]):
        end = at + inputs * outputs
        weight = parameters[at:end].reshape(inputs, outputs)
        bias = parameters[end : end + outputs]
        layers.append(Linear(weight.astype(dtype), bias.astype(dtype)))
        at = end + outputs
    return DeterministicPolicy(MLP(tuple(layers), (), jnp.tanh))
