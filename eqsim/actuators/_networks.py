"""Learned models of actuators: networks whose weights are parameters of the robot."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import check_count
from ..model import AbstractForceModel, ActuatorInputs
from ..model.arrays import as_array


FEATURES = "control", "error", "force", "length", "velocity"


class MLPActuator(AbstractForceModel):
    r"""A multilayer perceptron on present and past inputs of an actuator.

    $f + s\, (W_n \sigma(W_{n-1} \dots \sigma(W_1 x + b_1)) + b_n)$ with $x$ the inputs of this
    and of past time steps, each divided by its scale, and $\sigma = \tanh$. Without
    `residual`, $f$ is left out, and the network is the force law, as in Hwangbo et al.,
    *Learning agile and dynamic motor skills for legged robots*, 2019 (position error and
    velocity, with history). At the start, the last layer is zero.

    **Arguments:**

    - `features`: inputs: `"control"`, `"force"`, `"length"`, `"velocity"`, and
        `"error"`, which is control minus length.
    - `scales`: size of each input, by which it is divided.
    - `hidden`: widths of the hidden layers.
    - `history`: number of past time steps whose inputs the network reads; they are state
        variables.
    - `force_scale`: $s$, size of the force.
    - `residual`: true if the force of the law is added.
    - `key`: key of the initial weights.

    **Raises:** `ValueError` for unknown or missing inputs, another number of scales, and
    sizes that are not positive.
    """

    weights: tuple[Float[Array, "out in"], ...]
    biases: tuple[Float[Array, " out"], ...]
    scales: Float[Array, " nfeature"]
    force_scale: Float[Array, ""]
    features: tuple[str, ...] = eqx.field(static=True)
    history: int = eqx.field(static=True)
    residual: bool = eqx.field(static=True)

    def __init__(
        self,
        features: Sequence[str],
        scales: Sequence[float] | Float[Array, " nfeature"],
        hidden: Sequence[int] = (32, 32),
        *,
        history: int = 0,
        force_scale: float | Float[Array, ""] = 1.0,
        residual: bool = True,
        key: PRNGKeyArray,
    ):
        self.features, self.scales = _checked_features(features, scales)
        check_count("MLPActuator.history", history, 0)
        self.history, self.residual = history, residual
        self.force_scale = as_array(force_scale)
        sizes = [len(features) * (history + 1), *hidden, 1]
        for width in hidden:
            check_count("MLPActuator.hidden", width, 1)
        layers = zip(jr.split(key, len(sizes) - 1), sizes[:-1], sizes[1:])
        weights = [_uniform(key, (n, m), m) for key, m, n in layers]
        weights[-1] = jnp.zeros_like(weights[-1])
        self.weights = tuple(weights)
        self.biases = tuple(jnp.zeros(n) for n in sizes[1:])

    @property
    def num_states(self) -> int:
        """Number of past inputs."""
        return self.history * len(self.features)

    def __call__(
        self, state: Float[Array, " num_states"], inputs: ActuatorInputs
    ) -> tuple[Float[Array, " num_states"], Float[Array, ""]]:
        x = jnp.concatenate([_features(self.features, self.scales, inputs), state])
        next_state, out = x[: self.num_states], x
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            out = weight @ (out if k == 0 else jnp.tanh(out)) + bias
        base = inputs.force if self.residual else 0.0
        return next_state, base + self.force_scale * out[0]


class GRUActuator(AbstractForceModel):
    r"""A gated recurrent unit on the inputs of an actuator (Cho et al., *Learning phrase
    representations using RNN encoder-decoder*, 2014).

    $z = \sigma(W_z [x, h] + b_z)$, $r = \sigma(W_r [x, h] + b_r)$,
    $\tilde h = \tanh(W_h [x, r h] + b_h)$, $h \leftarrow (1 - z) h + z \tilde h$, and the
    force is $f + s\, (w \cdot h + c)$ with the new $h$. At the start, $w$ and $c$ are zero.

    **Arguments:** as for `MLPActuator`, and

    - `size`: number of hidden units, which are state variables.
    """

    update: Float[Array, "size in"]
    reset: Float[Array, "size in"]
    candidate: Float[Array, "size in"]
    gate_biases: Float[Array, "3 size"]
    readout: Float[Array, " size"]
    offset: Float[Array, ""]
    scales: Float[Array, " nfeature"]
    force_scale: Float[Array, ""]
    features: tuple[str, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)
    residual: bool = eqx.field(static=True)

    def __init__(
        self,
        features: Sequence[str],
        scales: Sequence[float] | Float[Array, " nfeature"],
        size: int = 16,
        *,
        force_scale: float | Float[Array, ""] = 1.0,
        residual: bool = True,
        key: PRNGKeyArray,
    ):
        self.features, self.scales = _checked_features(features, scales)
        check_count("GRUActuator.size", size, 1)
        self.size, self.residual = size, residual
        self.force_scale = as_array(force_scale)
        count = len(self.features) + size
        keys = jr.split(key, 3)
        self.update, self.reset, self.candidate = (
            _uniform(key, (size, count), count) for key in keys
        )
        self.gate_biases = jnp.zeros((3, size))
        self.readout, self.offset = jnp.zeros(size), jnp.zeros(())

    @property
    def num_states(self) -> int:
        """Number of hidden units."""
        return self.size

    def __call__(
        self, state: Float[Array, " size"], inputs: ActuatorInputs
    ) -> tuple[Float[Array, " size"], Float[Array, ""]]:
        x = _features(self.features, self.scales, inputs)
        both = jnp.concatenate([x, state])
        share = jax.nn.sigmoid(self.update @ both + self.gate_biases[0])
        kept = jax.nn.sigmoid(self.reset @ both + self.gate_biases[1])
        mixed = jnp.concatenate([x, kept * state])
        new = jnp.tanh(self.candidate @ mixed + self.gate_biases[2])
        state = state + share * (new - state)
        base = inputs.force if self.residual else 0.0
        out = jnp.sum(self.readout * state) + self.offset
        return state, base + self.force_scale * out


def _checked_features(features, scales):
    features = tuple(features)
    unknown = [name for name in features if name not in FEATURES]
    if unknown or not features or len(set(features)) < len(features):
        raise ValueError(
            f"`features` must be different names among {', '.join(FEATURES)}, got "
            f"{features}."
        )
    scales = jnp.asarray(scales, float)
    if scales.shape != (len(features),):
        raise ValueError(
            f"`scales` must have one entry per input ({', '.join(features)}), got shape "
            f"{scales.shape}."
        )
    return features, scales


def _features(features, scales, inputs: ActuatorInputs):
    values = inputs._asdict() | {"error": inputs.control - inputs.length}
    return jnp.stack([values[name] for name in features]) / scales


def _uniform(key, shape, count: int):
    bound = math.sqrt(1.0 / count)
    return jr.uniform(key, shape, minval=-bound, maxval=bound)
