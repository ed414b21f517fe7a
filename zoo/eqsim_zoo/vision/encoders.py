"""From numbers at each place of an image to a vector."""

import abc
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..blocks.hyperparameters import check_positive, static
from ..blocks.networks import Linear
from .images import AbstractEncoder, Image
from .layers import centered, check_shape, check_sizes, Conv, Maps, max_pool


Pool: TypeAlias = Callable[[Maps], Float[Array, " outputs"]]


class AbstractPool(eqx.Module):
    """Recipe of the last layer of an image encoder."""

    @abc.abstractmethod
    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> Pool:
        """Create the layer with its initial parameters.

        **Arguments:**

        - `key`: random key.
        - `shape`: height, width and channels of its input.
        - `dtype`: type of the parameters.
        """


class Flatten(AbstractPool):
    """All numbers, one after the other. Images of one size only."""

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> Pool:
        return self

    def __call__(self, x: Maps) -> Float[Array, " outputs"]:
        return x.reshape(-1)


class Mean(AbstractPool):
    """The mean of each channel: what is seen, and not where."""

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> Pool:
        return self

    def __call__(self, x: Maps) -> Float[Array, " channels"]:
        return jnp.mean(x, (0, 1))


class SpatialEmbeddings(AbstractPool):
    """Learned weighted sums of each channel over the image: see `WeightedPlaces`, which
    this creates. Images of one size only.

    **Arguments:**

    - `features`: number of sums of each channel.
    """

    features: int = static(8)

    def __check_init__(self):
        check_positive(self, "features")

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> Pool:
        # The fan-in is the number of places that are summed.
        first = jax.nn.initializers.variance_scaling(
            1.0, "fan_in", "truncated_normal", in_axis=(0, 1), batch_axis=(2,)
        )
        return WeightedPlaces(first(key, (*shape, self.features), dtype))


class WeightedPlaces(eqx.Module):
    r"""Weighted sums of each channel $c$: $y_{cf} = \sum_{ij} W_{ijcf}\, x_{ijc}$, the
    spatial learned embeddings of jaxrl_m. Initially $W$ is normal with the variance
    $1 / (\mathrm{height} \cdot \mathrm{width})$.

    ??? cite "Reference"
        Walke et al., *BridgeData V2: a dataset for robot learning at scale*, 2023.
    """

    weight: Float[Array, "height width channels features"]

    def __call__(self, x: Maps) -> Float[Array, " outputs"]:
        return jnp.einsum("ijc,ijcf->cf", x, self.weight).reshape(-1)


class SpatialSoftmax(AbstractPool):
    """Expected position of each channel: see `ExpectedPlaces`, which this creates.

    **Arguments:**

    - `temperature`: initial temperature; it is learned.
    """

    temperature: float = eqx.field(static=True, converter=float, default=1.0)

    def __check_init__(self):
        if not 0.0 < self.temperature < math.inf:
            raise ValueError(
                f"The temperature must be positive, got {self.temperature}."
            )

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> Pool:
        return ExpectedPlaces(jnp.array(math.log(self.temperature), dtype))


class ExpectedPlaces(eqx.Module):
    r"""Mean position of each channel $a$, $\sum_{ij} s_{ij} (u_j, v_i)$ under

    $$s_{ij} = \frac{e^{a_{ij} / \alpha}}{\sum_{kl} e^{a_{kl} / \alpha}}.$$

    The centers of the pixels have $u$ from left to right and $v$ from top to bottom,
    between -1 and 1 at the edges of the image. The temperature $\alpha$ is learned by its
    logarithm, so that it stays positive.

    ??? cite "Reference"
        Levine et al., *End-to-end training of deep visuomotor policies*, 2016; with
        a temperature: Finn et al., *Deep spatial autoencoders for visuomotor learning*,
        2016.
    """

    log_temperature: Float[Array, ""]

    def __call__(self, x: Maps) -> Float[Array, " outputs"]:
        height, width, channels = x.shape
        logits = x.reshape(-1, channels) * jnp.exp(-self.log_temperature)
        weights = jax.nn.softmax(logits, axis=0).reshape(x.shape)
        u = jnp.sum(weights, 0).T @ _centers(width, x.dtype)
        v = jnp.sum(weights, 1).T @ _centers(height, x.dtype)
        return jnp.stack([u, v], axis=1).reshape(-1)


def _centers(number: int, dtype: Any) -> Float[Array, " number"]:
    return (2.0 * jnp.arange(number, dtype=dtype) + 1.0) / number - 1.0


class SmallCNN(AbstractEncoder):
    """Three convolutions, each with a ReLU; then a layer of numbers, normalized, and
    the hyperbolic tangent.

    The convolutions are those of DQN but for the first, of 6 x 6 with stride 3 instead
    of 8 x 8 with stride 4: images of 64 x 64 then leave 7 x 7 places, as those of 84 x 84
    did. The end is that of DrQ.

    **Arguments:**

    - `widths`, `kernels`, `strides`: sizes of the convolutions, which have no padding.
    - `outputs`: numbers in the result.
    - `pool`: pooling after the last convolution.

    ??? cite "Reference"
        Mnih et al., *Human-level control through deep reinforcement learning*, 2015,
        methods; Kostrikov, Yarats, Fergus, *Image augmentation is all you need:
        regularizing deep reinforcement learning from pixels*, 2020.
    """

    widths: tuple[int, ...] = static((32, 64, 64))
    kernels: tuple[int, ...] = static((6, 4, 3))
    strides: tuple[int, ...] = static((3, 2, 1))
    outputs: int = static(256)
    pool: AbstractPool = Flatten()

    def __check_init__(self):
        check_positive(self, "outputs")
        for name in ("widths", "kernels", "strides"):
            check_sizes(f"SmallCNN.{name}", vars(self)[name])
        if not len(self.widths) == len(self.kernels) == len(self.strides):
            raise ValueError(
                "The numbers of widths, kernels and strides must be equal, got "
                f"{self.widths}, {self.kernels} and {self.strides}."
            )

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> "ConvNet":
        check_shape(shape, self._least(), "`SmallCNN`")
        layers, inputs = [], shape[2]
        for k, width in enumerate(self.widths):
            kernel, stride = self.kernels[k], self.strides[k]
            kwargs: dict[str, Any] = dict(stride=stride, scale=2.0, dtype=dtype)
            layers.append(
                Conv.create(jr.fold_in(key, k), inputs, width, kernel, **kwargs)
            )
            inputs = width
        maps = output_shape(lambda x: _see(tuple(layers), x), shape, dtype)
        pool = self.pool.create(jr.fold_in(key, len(layers) + 1), maps, dtype)
        seen = features(pool, maps, dtype)
        key = jr.fold_in(key, len(layers))
        last = Linear.create(key, seen, self.outputs, 1.0, dtype)
        norm = eqx.nn.LayerNorm(self.outputs, dtype=dtype)
        return ConvNet(tuple(layers), pool, last, norm)

    def _least(self) -> int:
        """Return the smallest image height of which the last convolution leaves one
        row."""
        rows = 1
        for kernel, stride in zip(self.kernels[::-1], self.strides[::-1]):
            rows = (rows - 1) * stride + kernel
        return rows


class ConvNet(eqx.Module):
    """Network of `SmallCNN`."""

    layers: tuple[Conv, ...]
    pool: Pool
    last: Linear
    norm: eqx.nn.LayerNorm

    def __call__(self, image: Image) -> Float[Array, " outputs"]:
        x = centered(image, self.last.weight.dtype)
        return jnp.tanh(self.norm(self.last(self.pool(_see(self.layers, x)))))


def _see(layers: tuple[Conv, ...], x: Maps) -> Float[Array, "rows columns outputs"]:
    for layer in layers:
        x = jax.nn.relu(layer(x))
    return x


def features(network: Callable, shape: tuple[int, int, int], dtype: Any) -> int:
    """Return the number of outputs of a network for maps of that shape."""
    return math.prod(output_shape(network, shape, dtype))


def output_shape(network: Callable, shape: tuple[int, int, int], dtype: Any) -> Any:
    """Return the shape of the output of a network for maps of that shape."""
    return jax.eval_shape(network, jax.ShapeDtypeStruct(shape, dtype)).shape


class Impala(AbstractEncoder):
    r"""Stacks of a convolution, a maximum that halves the image, and residual blocks
    $x + \mathrm{conv}(\mathrm{relu}(\mathrm{conv}(\mathrm{relu}(x))))$; then a layer of
    numbers between two ReLUs. Convolutions are of 3 x 3, with zeros around the image.

    **Arguments:**

    - `widths`: channels of each stack.
    - `blocks`: in each stack.
    - `outputs`: numbers in the result.

    ??? cite "Reference"
        Espeholt et al., *IMPALA: scalable distributed deep-RL with importance weighted
        actor-learner architectures*, 2018, figure 3, right; without its recurrent part.
    """

    widths: tuple[int, ...] = static((16, 32, 32))
    blocks: int = static(2)
    outputs: int = static(256)

    def __check_init__(self):
        check_positive(self, "blocks", "outputs")
        check_sizes("Impala.widths", self.widths)

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> "ImpalaNet":
        check_shape(shape, 2 ** len(self.widths), "`Impala`")
        stacks, inputs = [], shape[2]
        for k, width in enumerate(self.widths):
            stack_key = jr.fold_in(key, k)
            stacks.append(Stack.create(stack_key, inputs, width, self.blocks, dtype))
            inputs = width
        seen = features(lambda x: _see_impala(tuple(stacks), x), shape, dtype)
        key = jr.fold_in(key, len(stacks))
        last = Linear.create(key, seen, self.outputs, 1.0, dtype)
        return ImpalaNet(tuple(stacks), last)


class Residual(eqx.Module):
    """A block of `Impala`."""

    first: Conv
    second: Conv

    def __call__(self, x: Maps) -> Maps:
        return x + self.second(jax.nn.relu(self.first(jax.nn.relu(x))))


class Stack(eqx.Module):
    """A stack of `Impala`."""

    entry: Conv
    blocks: tuple[Residual, ...]

    @staticmethod
    def create(
        key: PRNGKeyArray, inputs: int, width: int, blocks: int, dtype: Any
    ) -> "Stack":
        """Create a stack with random parameters."""
        conv = lambda key, inputs: Conv.create(
            key, inputs, width, 3, padding=1, dtype=dtype
        )
        keys = jr.split(key, 2 * blocks + 1)
        pairs = zip(keys[1::2], keys[2::2])
        residuals = tuple(Residual(conv(a, width), conv(b, width)) for a, b in pairs)
        return Stack(conv(keys[0], inputs), residuals)

    def __call__(
        self, x: Float[Array, "height width inputs"]
    ) -> Float[Array, "rows columns outputs"]:
        x = max_pool(self.entry(x))
        for block in self.blocks:
            x = block(x)
        return x


class ImpalaNet(eqx.Module):
    """Network of `Impala`."""

    stacks: tuple[Stack, ...]
    last: Linear

    def __call__(self, image: Image) -> Float[Array, " outputs"]:
        x = centered(image, self.last.weight.dtype)
        return jax.nn.relu(self.last(_see_impala(self.stacks, x)))


def _see_impala(stacks: tuple[Stack, ...], x: Maps) -> Float[Array, " features"]:
    for stack in stacks:
        x = stack(x)
    return jax.nn.relu(x).reshape(-1)
