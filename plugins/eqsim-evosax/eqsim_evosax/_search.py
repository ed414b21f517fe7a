"""Search distributions of evosax, with settings that are arrays."""

import contextlib
import enum
import functools
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import optax
from evosax.algorithms import ARS, CMA_ES, Open_ES, PGPE
from jaxtyping import Array, Float, PRNGKeyArray


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
