"""Recurrent networks: a gated recurrent unit between an encoder and a head."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._networks import Linear, MLP


class GRU(eqx.Module):
    r"""Gated recurrent unit: with input $x$, hidden state $h$, and affine maps $A$ of the
    input and $B$ of the hidden state for each gate,

    $$r = \sigma(A_r x + B_r h), \quad z = \sigma(A_z x + B_z h), \quad
    n = \tanh(A_n x + r \odot B_n h), \quad h' = (1 - z) \odot n + z \odot h.$$

    **Arguments:**

    - `inputs`, `hidden`: $A$ and $B$ of the three gates, in this order.

    ??? cite "Reference"
        Cho et al., *Learning phrase representations using RNN encoder-decoder for
        statistical machine translation*, 2014; with the reset gate after the product, as
        in cuDNN.
    """

    inputs: Linear
    hidden: Linear

    @staticmethod
    def create(key: PRNGKeyArray, inputs: int, size: int, dtype: Any) -> "GRU":
        """Create a unit.

        **Arguments:**

        - `inputs`, `size`: sizes of the input and of the hidden state.
        """
        key_inputs, key_hidden = jr.split(key)
        return GRU(
            Linear.create(key_inputs, inputs, 3 * size, 1.0, dtype),
            Linear.create(key_hidden, size, 3 * size, 1.0, dtype),
        )

    def __call__(
        self, hidden: Float[Array, " size"], gates: Float[Array, " gates"]
    ) -> Float[Array, " size"]:
        """Compute the next hidden state.

        **Arguments:**

        - `hidden`: hidden state.
        - `gates`: `inputs(x)`, which a caller can compute for all steps of a sequence.
        """
        reset, update, new = jnp.split(gates, 3)
        old_reset, old_update, old_new = jnp.split(self.hidden(hidden), 3)
        reset = jax.nn.sigmoid(reset + old_reset)
        update = jax.nn.sigmoid(update + old_update)
        new = jnp.tanh(new + reset * old_new)
        return new + update * (hidden - new)


class RecurrentNetwork(eqx.Module):
    """Network with a memory: a linear encoder and `activation`, a `GRU`, and a multilayer
    perceptron of the new hidden state and the code.

    The head also sees the code, so that tasks without need for memory are learned as by
    a network without it.

    **Arguments:**

    - `encoder`: layer from inputs to codes, as large as the hidden state.
    - `gru`: recurrent unit.
    - `head`: network from the hidden state and the code to outputs.
    """

    encoder: Linear
    gru: GRU
    head: MLP

    @staticmethod
    def create(
        key: PRNGKeyArray,
        inputs: int,
        memory_size: int,
        sizes: tuple[int, ...],
        activation: Callable,
        *,
        last_scale: float = 1.0,
        dtype: Any = jnp.float32,
    ) -> "RecurrentNetwork":
        """Create a network.

        **Arguments:**

        - `inputs`, `memory_size`: sizes of the input and of the hidden state.
        - `sizes`: sizes of the hidden layers of the head, and of the output.
        - `activation`: nonlinearity of code and head.
        - `last_scale`: scale of the last layer, see `Linear`.
        """
        keys = jr.split(key, 3)
        layers = 2 * memory_size, *sizes
        return RecurrentNetwork(
            Linear.create(keys[0], inputs, memory_size, 1.0, dtype),
            GRU.create(keys[1], memory_size, memory_size, dtype),
            MLP.create(keys[2], layers, activation, last_scale=last_scale, dtype=dtype),
        )

    def first_memory(self) -> Float[Array, " size"]:
        """Return the hidden state at the start of an episode: zeros."""
        return jnp.zeros_like(self.encoder.bias)

    def __call__(
        self, memory: Float[Array, " size"], x: Float[Array, " inputs"]
    ) -> tuple[Float[Array, " size"], Float[Array, " outputs"]]:
        """Compute the hidden state after a step, and the output."""
        code = self._code(x)
        memory = self.gru(memory, self.gru.inputs(code))
        return memory, self._output(memory, code)

    def unroll(
        self,
        memory: Float[Array, " size"],
        x: Float[Array, "time inputs"],
        begins: Bool[Array, " time"],
    ) -> tuple[Float[Array, "time size"], Float[Array, "time outputs"]]:
        """Compute the hidden state after each step, and the outputs.

        **Arguments:**

        - `memory`: hidden state before the first step.
        - `x`: input of each step.
        - `begins`: true for the first step of an episode, before which the hidden state
            is set to zero.
        """
        codes = jax.vmap(self._code)(x)
        gates = jax.vmap(self.gru.inputs)(codes)

        def step(memory, now):
            gates, begins = now
            memory = self.gru(jnp.where(begins, 0.0, memory), gates)
            return memory, memory

        _, memories = lax.scan(step, memory, (gates, begins))
        return memories, jax.vmap(self._output)(memories, codes)

    def _code(self, x):
        return self.head.activation(self.encoder(x))

    def _output(self, memory, code):
        return self.head(jnp.concatenate([memory, code]))
