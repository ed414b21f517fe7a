"""A network and the state of its optimizer."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import optax
from jaxtyping import Array, Bool, Float

from ._networks import target_update


class Learner(eqx.Module):
    """A network, or any PyTree of networks, and the state of its optimizer.

    The optimizer itself is created where it is used, from hyper-parameters of the agent,
    which may be arrays: `optax.adam(agent.learning_rate)`.

    **Arguments:**

    - `model`: network or PyTree that is trained.
    - `opt_state`: state of the optimizer; None for a model that is not trained by
        gradients, such as a target network.
    """

    model: Any
    opt_state: Any

    @staticmethod
    def create(
        model: Any, optimizer: optax.GradientTransformation | None = None
    ) -> "Learner":
        """Create a learner before its first step; without an optimizer for a model that
        `target_update` moves."""
        state = None if optimizer is None else optimizer.init(_parameters(model))
        return Learner(model, state)

    def apply_loss_fn(
        self,
        loss_fn: Callable[[Any], Any],
        optimizer: optax.GradientTransformation,
        *,
        max_grad_norm: Float[Array, ""] | None = None,
        frozen: Callable[[Any], Any] | None = None,
    ) -> tuple["Learner", dict[str, Array]]:
        """Take one gradient step on a loss.

        If the loss or its gradient is not finite, the step is skipped; the reported
        metrics are then not finite either.

        **Arguments:**

        - `loss_fn`: `model -> (loss, metrics)`, or `model -> loss`. Networks that it
            closes over are constants.
        - `optimizer`: optimizer given to `create`.
        - `max_grad_norm`: largest global norm; longer gradients are scaled down.
        - `frozen`: `model -> parts` that stay constant, such as `lambda m: m.senses`.

        **Returns:** the learner after the step; the metrics of `loss_fn`, with `loss` and
        `grad_norm`, the global norm of the gradient before clipping.

        **Raises:** `ValueError` if the learner has no optimizer.
        """

        def with_metrics(model):
            found = loss_fn(model)
            return found if isinstance(found, tuple) else (found, {})

        value_and_grad = eqx.filter_value_and_grad(with_metrics, has_aux=True)
        (loss, metrics), grads = value_and_grad(self.model)
        new, norm = self.apply_gradients(
            grads,
            optimizer,
            max_grad_norm=max_grad_norm,
            good=jnp.isfinite(loss),
            frozen=frozen,
        )
        return new, {**metrics, "loss": loss, "grad_norm": norm}

    def apply_gradients(
        self,
        grads: Any,
        optimizer: optax.GradientTransformation,
        *,
        max_grad_norm: Float[Array, ""] | None = None,
        good: Bool[Array, ""] | bool = True,
        frozen: Callable[[Any], Any] | None = None,
    ) -> tuple["Learner", Float[Array, ""]]:
        """Take one step along a given gradient.

        **Arguments:**

        - `grads`: gradient with the structure of `model`, None for other leaves.
        - `optimizer`, `max_grad_norm`, `frozen`: see `apply_loss_fn`. The gradient of
            frozen parts is ignored.
        - `good`: false to skip the step, as if the gradient were not finite.

        **Returns:** the learner after the step, and the global norm of the gradient.

        **Raises:** `ValueError` if the learner has no optimizer.
        """
        if self.opt_state is None:
            raise ValueError(
                "This learner was created without an optimizer. To train it, pass an "
                "optimizer to `Learner.create`."
            )
        if frozen is not None:
            still = lambda part: jtu.tree_map(jnp.zeros_like, part)
            grads = eqx.tree_at(frozen, grads, replace_fn=still)
        norm = optax.tree.norm(grads)
        good = good & jnp.isfinite(norm)
        if max_grad_norm is not None:
            scale = jnp.minimum(1.0, max_grad_norm / jnp.maximum(norm, 1e-9))
            grads = jtu.tree_map(lambda g: g * scale, grads)
        # Optax counts in integers, and multiplies numbers of any type and rank.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            step, opt_state = optimizer.update(
                grads, self.opt_state, _parameters(self.model)
            )
        model = eqx.apply_updates(self.model, step)
        if frozen is not None:  # Some optimizers move what has no gradient.
            model = eqx.tree_at(frozen, model, frozen(self.model))
        after = Learner(model, opt_state)
        keep = lambda new, old: jnp.where(good, new, old) if eqx.is_array(new) else old
        return jtu.tree_map(keep, after, self), norm

    def target_update(self, new: "Learner", rate: Float[Array, ""]) -> "Learner":
        r"""Move the parameters towards those of another learner, as target networks do:
        $\bar\theta \leftarrow (1 - \tau)\,\bar\theta + \tau\,\theta$.

        **Arguments:**

        - `new`: learner with the parameters $\theta$.
        - `rate`: rate $\tau$.
        """
        return Learner(target_update(new.model, self.model, rate), self.opt_state)


def _parameters(model: Any) -> Any:
    return eqx.filter(model, eqx.is_inexact_array)


def mean_metrics(
    metrics: Mapping[str, Float[Array, "..."]], axes: int = 1
) -> dict[str, Float[Array, "..."]]:
    """Average the metrics of several updates, and count the updates that are not finite.

    **Arguments:**

    - `metrics`: metrics of updates along the leading axes.
    - `axes`: number of these axes.

    **Returns:** the mean of each metric over the updates in which it is finite, NaN if there
    are none; the number of `updates`; and `nonfinite`, the number of updates in which a
    metric is not finite, which `Learner` skips. The training loop adds the two up.
    """
    if not metrics:
        return {}
    over = tuple(range(axes))
    fine = {name: jnp.isfinite(x) for name, x in metrics.items()}
    out = {}
    for name, x in metrics.items():
        number = jnp.sum(fine[name], axis=over, dtype=x.dtype)
        total = jnp.sum(jnp.where(fine[name], x, 0.0), axis=over)
        out[name] = jnp.where(number > 0, total / jnp.maximum(number, 1.0), jnp.nan)
    first = next(iter(metrics.values()))
    flags = [x.reshape(*x.shape[:axes], -1).all(axis=axes) for x in fine.values()]
    whole = jnp.all(jnp.stack(flags), axis=0)
    counts = {"updates": whole.size, "nonfinite": jnp.sum(~whole)}
    return out | {name: jnp.asarray(n, first.dtype) for name, n in counts.items()}
