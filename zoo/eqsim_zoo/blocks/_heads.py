"""Policies and values of agents that learn from recordings."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ._distributions import Categorical, Normal, TanhNormal
from ._levels import Levels
from ._networks import Ensemble, MLP
from ._policies import bounded_log_std


class GaussianPolicy(eqx.Module):
    r"""Normal policy whose mean is $\tanh$ of a network and whose standard deviations do
    not depend on the observation. Its density is finite at the bounds of actions too, where
    those of datasets often are.

    **Arguments:**

    - `network`: network from features to means before $\tanh$.
    - `raw`: parameters of the standard deviations, which are between $e^{-5}$ and $e^2$.

    ??? cite "Reference"
        Kostrikov, Nair, Levine, *Offline reinforcement learning with implicit Q-learning*,
        2022, appendix B.
    """

    network: MLP
    raw: Float[Array, " nu"]

    def __call__(self, features: Float[Array, " n"]) -> Normal:
        return Normal(jnp.tanh(self.network(features)), bounded_log_std(self.raw))


class Choice(eqx.Module):
    """One of finitely many actions.

    **Arguments:**

    - `logits`: logit of each action.
    - `levels`: levels of the actions.
    """

    logits: Float[Array, " count"]
    levels: Levels

    def mode(self) -> Float[Array, " nu"]:
        """Return the most likely action."""
        return self.levels.action(jnp.argmax(self.logits), self.logits.dtype)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " nu"]:
        """Draw an action."""
        return self.levels.action(jr.categorical(key, self.logits), self.logits.dtype)

    def log_prob(self, action: Float[Array, " nu"]) -> Float[Array, ""]:
        """Compute the logarithm of the probability."""
        return Categorical(self.logits[None]).log_prob(self.levels.index(action)[None])

    def entropy(self) -> Float[Array, ""]:
        """Compute the entropy in nats."""
        return Categorical(self.logits[None]).entropy()


class ChoicePolicy(eqx.Module):
    """One of finitely many actions, by what a network gives for each."""

    network: MLP
    levels: Levels

    def __call__(self, features: Float[Array, " n"]) -> Choice:
        return Choice(self.network(features), self.levels)


class ChoiceCritic(eqx.Module):
    """Values of finitely many actions, by several networks that judge on their own."""

    networks: Ensemble
    levels: Levels

    def all(self, features: Float[Array, " n"]) -> Float[Array, "number count"]:
        """Return the values of all actions."""
        return self.networks(features)

    def __call__(
        self, features: Float[Array, " n"], action: Float[Array, " nu"]
    ) -> Float[Array, " number"]:
        return self.all(features)[:, self.levels.index(action)]


class StateValue(eqx.Module):
    """The value of a state."""

    network: MLP

    def __call__(self, features: Float[Array, " n"]) -> Float[Array, ""]:
        return self.network(features)[0]


def select_action(
    found: Normal | TanhNormal | Choice | Float[Array, " nu"],
    key: PRNGKeyArray | None,
) -> Float[Array, " nu"]:
    """Return an action between -1 and 1 of a policy: sampled, or the most likely
    one."""
    if isinstance(found, Normal | Choice):
        action = found.mode() if key is None else found.sample(key)
        return jnp.clip(action, -1.0, 1.0)
    if isinstance(found, TanhNormal):
        if key is None:
            return found.mode()
        return found.sample_and_log_prob(key)[0]
    return found
