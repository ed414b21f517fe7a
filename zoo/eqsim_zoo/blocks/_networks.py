"""Networks: layers, multilayer perceptrons, ensembles and critics."""

import enum
import pkgutil
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ._encoding import check_vector


class Linear(eqx.Module):
    r"""Affine layer $x W + b$. Initially $b$ is zero and $W$ uniform, with variance `scale`
    over the number of inputs.

    ??? cite "Reference"
        LeCun et al., *Efficient backprop*, 1998, section 4.6.
    """

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    @staticmethod
    def create(
        key: PRNGKeyArray, inputs: int, outputs: int, scale: float, dtype: Any
    ) -> "Linear":
        """Create a layer."""
        # Not orthogonal: two batched decompositions that run concurrently can
        # deadlock on a machine with two cores (jaxlib 0.10.2).
        first = jax.nn.initializers.variance_scaling(scale, "fan_in", "uniform")
        return Linear(first(key, (inputs, outputs), dtype), jnp.zeros(outputs, dtype))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        return x @ self.weight + self.bias


class LayerNorm(eqx.Module):
    """Layer normalization: subtract the mean, divide by the standard deviation, scale, shift.

    ??? cite "Reference"
        Ba, Kiros, Hinton, *Layer normalization*, 2016.
    """

    scale: Float[Array, " size"]
    shift: Float[Array, " size"]

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        off = x - jnp.mean(x)
        return off * jax.lax.rsqrt(jnp.mean(off**2) + 1e-5) * self.scale + self.shift


class _Importable:
    """A function that is pickled by its import path.

    `pickle` refuses `jax.nn.relu` and other jitted functions of JAX, and `cloudpickle` and
    `copy.deepcopy` make new functions of them, for which programs compile again.
    """

    def __init__(self, fn: Callable):
        self.fn = fn

    def __call__(self, x: Array) -> Array:
        return self.fn(x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Importable) and self.fn == other.fn

    def __hash__(self) -> int:
        return hash(self.fn)

    def __repr__(self) -> str:
        return repr(self.fn)

    def __reduce__(self) -> tuple[Callable, tuple]:
        try:
            path = f"{self.fn.__module__}:{self.fn.__qualname__}"
            if pkgutil.resolve_name(path) is self.fn:
                return _from_path, (path,)
        except (AttributeError, ImportError, ValueError):
            pass
        return _Importable, (self.fn,)


def _from_path(path: str) -> _Importable:
    return _Importable(pkgutil.resolve_name(path))


def _importable(fn: Any) -> Any:
    """Convert `MLP.activation`; placeholders of pytree transformations pass."""
    plain = callable(fn) and not isinstance(fn, _Importable)
    return _Importable(fn) if plain else fn


class Activation(enum.Enum):
    """Nonlinearity of the hidden layers of a network."""

    ELU = "elu"
    RELU = "relu"
    SWISH = "swish"
    TANH = "tanh"

    @property
    def function(self) -> Callable[[Array], Array]:
        """The nonlinearity itself."""
        functions = {"elu": jax.nn.elu, "relu": jax.nn.relu, "swish": jax.nn.swish}
        return functions.get(self.value, jnp.tanh)


class MLP(eqx.Module):
    """A multilayer perceptron: `activation` after each layer but the last.

    **Arguments:**

    - `layers`: the layers.
    - `norms`: before each activation; none by default.
    - `activation`: a function of a module, so that two networks are alike.
    """

    layers: tuple[Linear, ...]
    norms: tuple[LayerNorm, ...]
    activation: Callable = eqx.field(static=True, converter=_importable)

    @staticmethod
    def create(
        key: PRNGKeyArray,
        sizes: tuple[int, ...],
        activation: Callable = jax.nn.relu,
        *,
        last_scale: float = 1.0,
        layer_norm: bool = False,
        dtype: Any = jnp.float32,
    ) -> "MLP":
        """Create a network.

        **Arguments:**

        - `sizes`: sizes of the input, of each hidden layer, and of the output.
        - `last_scale`: scale of the last layer, see `Linear`.
        - `layer_norm`: true if hidden layers are normalized.

        **Raises:** `ValueError` without an input and an output.
        """
        if len(sizes) < 2:
            raise ValueError(
                "The sizes of a network must list input, hidden layers (if any) and "
                f"output, got {sizes}."
            )
        layers = []
        for k, (inputs, outputs) in enumerate(zip(sizes[:-1], sizes[1:])):
            scale = last_scale if k == len(sizes) - 2 else 1.0
            layer_key = jr.fold_in(key, k)
            layers.append(Linear.create(layer_key, inputs, outputs, scale, dtype))
        norms = [
            LayerNorm(jnp.ones(n, dtype), jnp.zeros(n, dtype)) for n in sizes[1:-1]
        ]
        return MLP(tuple(layers), tuple(norms) if layer_norm else (), activation)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        check_vector("The input of a network", x, self.layers[0].weight.shape[0])
        for k, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            x = self.activation(self.norms[k](x) if self.norms else x)
        return self.layers[-1](x)


class Ensemble(eqx.Module):
    """Networks of the same shape with stacked weights."""

    members: Any

    @staticmethod
    def create(
        key: PRNGKeyArray, number: int, make: Callable[[PRNGKeyArray], Any]
    ) -> "Ensemble":
        """Create `number` networks with different keys.

        **Arguments:**

        - `make`: `key -> network`.
        """
        return Ensemble(eqx.filter_vmap(make)(jr.split(key, number)))

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, "number outputs"]:
        each = eqx.filter_vmap(lambda net, x: net(x), in_axes=(eqx.if_array(0), None))
        return each(self.members, x)


class Critic(eqx.Module):
    """Ensemble of action-value networks."""

    networks: Ensemble

    @staticmethod
    def create(
        key: PRNGKeyArray,
        obs_size: int,
        action_size: int,
        hidden: tuple[int, ...],
        *,
        number: int = 2,
        layer_norm: bool = False,
        dtype: Any = jnp.float32,
    ) -> "Critic":
        """Create an ensemble of critics."""
        sizes = (obs_size + action_size, *hidden, 1)
        make = lambda key: MLP.create(key, sizes, layer_norm=layer_norm, dtype=dtype)
        return Critic(Ensemble.create(key, number, make))

    def __call__(
        self, obs: Float[Array, " nobs"], action: Float[Array, " nu"]
    ) -> Float[Array, " number"]:
        return self.networks(jnp.concatenate([obs, action]))[:, 0]


def target_update(new: Any, target: Any, rate: Float[Array, ""]) -> Any:
    r"""Move target parameters towards new ones:
    $\bar\theta \leftarrow (1 - \tau)\,\bar\theta + \tau\,\theta$."""
    follow = lambda x, y: y + rate * (x - y) if eqx.is_inexact_array(x) else y
    return jax.tree_util.tree_map(follow, new, target)
