"""Settings that `PPO` and `RecurrentPPO` share."""

import equinox as eqx
import optax
from jaxtyping import Array, Float

from eqsim import AbstractOnlineAgent

from ..blocks import (
    Activation,
    as_scalar,
    check_ranges,
    linear_schedule,
    static,
)


class AbstractProximalAgent(AbstractOnlineAgent):
    r"""Settings of proximal policy optimization.

    **Arguments:**

    - `num_epochs`: passes over each batch.
    - `num_minibatches`: minibatches per pass.
    - `activation`: nonlinearity of the hidden layers.
    - `normalize_observations`: true to normalize observations.
    - `learning_rate`: Adam step size.
    - `adam_epsilon`: Adam's constant $\epsilon$.
    - `anneal_steps`: steps over which the learning rate decreases linearly to zero, below
        $2^{31}$; 0: constant.
    - `discount`: discount $\gamma$.
    - `gae_decay`: decay $\lambda$ of the advantages.
    - `clip`: clip range $\epsilon$ of the probability ratio.
    - `value_clip`: clip range of the change of values from $V_{old}$; 0: no clipping.
    - `value_cost`: weight $c_V$ of the value loss.
    - `entropy_cost`: weight $c_H$ of the entropy.
    - `reward_scale`: factor that multiplies rewards.
    - `max_grad_norm`: global norm to which gradients are clipped.
    - `initial_log_std`: logarithm of the initial standard deviation of actions.
    """

    num_epochs: int = static(4)
    num_minibatches: int = static(8)
    activation: Activation = static(Activation.SWISH)
    normalize_observations: bool = static(True)
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=3e-4)
    adam_epsilon: Float[Array, ""] = eqx.field(converter=as_scalar, default=1e-8)
    anneal_steps: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    gae_decay: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.95)
    clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.2)
    value_clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    value_cost: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)
    entropy_cost: Float[Array, ""] = eqx.field(converter=as_scalar, default=1e-3)
    reward_scale: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    max_grad_norm: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)
    initial_log_std: Float[Array, ""] = eqx.field(converter=as_scalar, default=-0.5)

    def __check_init__(self):
        check_ranges(self)

    def _optimizer(self, steps: Float[Array, ""]) -> optax.GradientTransformation:
        """Return Adam with the learning rate after a number of control steps."""
        rate = linear_schedule(self.learning_rate, steps, self.anneal_steps)
        return optax.adam(rate, eps=self.adam_epsilon)
