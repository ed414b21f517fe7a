"""Networks of PyTorch as functions of JAX."""

from collections.abc import Sequence
from numbers import Number
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import torch
from jaxtyping import Array, Float, PRNGKeyArray
from tensordict.nn import (
    NormalParamExtractor,
    TensorDictModule,
    TensorDictModuleBase,
)
from torch import nn
from torchrl.modules import Actor, MLP, SafeModule

from ._arrays import to_jax


_ACTIVATIONS = {
    nn.ELU: lambda x, alpha: jax.nn.elu(x, alpha),
    nn.GELU: lambda x, approximate: jax.nn.gelu(x, approximate=approximate == "tanh"),
    nn.LeakyReLU: lambda x, slope: jax.nn.leaky_relu(x, slope),
    nn.Mish: lambda x: jax.nn.mish(x),
    nn.ReLU: lambda x: jax.nn.relu(x),
    nn.Sigmoid: lambda x: jax.nn.sigmoid(x),
    nn.SiLU: lambda x: jax.nn.silu(x),
    nn.Softplus: lambda x, beta, threshold: jnp.where(
        beta * x > threshold, x, jax.nn.softplus(beta * x) / beta
    ),
    nn.Tanh: lambda x: jnp.tanh(x),
}
_SETTINGS = {
    nn.ELU: ("alpha",),
    nn.GELU: ("approximate",),
    nn.LeakyReLU: ("negative_slope",),
    nn.Softplus: ("beta", "threshold"),
}

Plan = tuple[tuple[Any, ...], ...]


def plan_of(module: nn.Module) -> tuple[Plan, list[torch.Tensor]]:
    """Return the layers of a network, and its weights in the same order.

    **Raises:** `TypeError` for an unsupported layer, including subclasses of supported
    ones, whose behavior is unknown.
    """
    plan, weights = [], []
    for layer in _layers(module):
        kind, own = type(layer), list(layer.parameters(recurse=False))
        if kind is nn.Linear:
            plan.append((nn.Linear, len(own)))
        elif kind is nn.LayerNorm:
            if len(layer.normalized_shape) != 1:
                raise TypeError(
                    f"`{layer}` must normalize one axis, got "
                    f"{len(layer.normalized_shape)}."
                )
            plan.append((nn.LayerNorm, len(own), layer.eps))
        elif kind is NormalParamExtractor:
            plan.append((NormalParamExtractor, 0))
        elif kind in _ACTIVATIONS:
            names = _SETTINGS.get(kind, ())
            settings = tuple(layer.__dict__[name] for name in names)
            plan.append((kind, 0, *settings))
        elif not _does_nothing(layer):
            known = [nn.Linear, nn.LayerNorm, NormalParamExtractor, *_ACTIVATIONS]
            raise TypeError(
                f"Layers must be one of {', '.join(x.__name__ for x in known)}, or "
                f"sequences of them, got `{layer}`."
            )
        weights += own
    return tuple(plan), weights


def apply(plan: Plan, weights: Sequence[Array], x: Float[Array, " n"]) -> Any:
    """Apply the network to a vector. For a normal distribution, the result is its
    mean."""
    left = iter(weights)
    for kind, number, *settings in plan:
        own = [next(left) for _ in range(number)]
        if kind is nn.Linear:
            x = own[0] @ x + (own[1] if number == 2 else 0.0)
        elif kind is nn.LayerNorm:
            x = x - jnp.mean(x)
            x = x / jnp.sqrt(jnp.mean(x**2) + settings[0])
            x = x * own[0] if own else x
            x = x + own[1] if number == 2 else x
        elif kind is NormalParamExtractor:
            x, _ = jnp.split(x, 2)
        else:
            x = _ACTIVATIONS[kind](x, *settings)
    return x


class TorchPolicy(eqx.Module):
    """A PyTorch policy for `eqsim.rollout`: `policy(obs, key)`.

    **Arguments:**

    - `weights`: weights in the order of its layers.
    """

    weights: tuple[Array, ...]
    _plan: Plan = eqx.field(static=True)

    def __call__(
        self, obs: Float[Array, " nobs"], key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        return apply(self._plan, self.weights, obs)


def from_torch(policy: nn.Module) -> TorchPolicy:
    """Convert a PyTorch network to an Equinox module, with a copy of its weights.

    **Arguments:**

    - `policy`: sequence of linear layers, layer norms and activations, such as
        `torchrl.modules.MLP`, or a `TensorDictModule` around one. If it ends with a
        `NormalParamExtractor`, the policy is the mean.

    **Raises:** `TypeError` for unsupported layers, subclasses of supported ones, hooks,
    and dropout in training mode.

    !!! example

        ```python
        trajectory = eqsim.rollout(env, from_torch(actor), keys, 1000)
        ```
    """
    plan, weights = plan_of(policy)
    copies = tuple(jnp.array(to_jax(x)) for x in weights)
    return TorchPolicy(copies, plan)


def _does_nothing(layer: nn.Module) -> bool:
    """Test if a layer does not change a vector."""
    if type(layer) is nn.Dropout and layer.training and layer.p > 0.0:
        raise TypeError(
            f"`{layer}` must be in evaluation mode, because it draws random numbers in "
            "training mode. Call `policy.eval()`, or remove the layer."
        )
    whole = type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)
    return whole or type(layer) in (nn.Identity, nn.Dropout)


def _layers(module: nn.Module) -> list[nn.Module]:
    if module._forward_hooks or module._forward_pre_hooks:
        raise TypeError(
            f"`{type(module).__name__}` must have no hooks, which cannot be converted. "
            "Remove them; replace weights that hooks compute by plain ones."
        )
    if type(module) in (TensorDictModule, SafeModule, Actor):
        return _layers(module.module)
    if isinstance(module, TensorDictModuleBase):
        raise TypeError(
            f"`{type(module).__name__}` may contain more than one network. Pass the "
            "network itself."
        )
    if type(module) is MLP and not isinstance(module.out_features, Number):
        raise TypeError(
            f"`MLP.out_features` must be an integer, got {module.out_features}."
        )
    if type(module) in (nn.Sequential, MLP):
        return [layer for part in module for layer in _layers(part)]
    return [module]
