"""Networks, what they see, and how they learn.

Layers, multilayer perceptrons, ensembles and critics; `Vectors`, by which agents create
networks for their observations; and `Learner`, a network with its optimizer, which takes
gradient steps.
"""

import abc
import enum
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim.envs import SignedPermutation

from .hyperparameters import static
from .observations import (
    check_kinds,
    check_parts,
    check_vector,
    Features,
    is_vector,
    used_parts,
)


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
    norms: tuple[eqx.nn.LayerNorm, ...]
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
        norms = [eqx.nn.LayerNorm(n, dtype=dtype) for n in sizes[1:-1]]
        return MLP(tuple(layers), tuple(norms) if layer_norm else (), activation)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        check_vector("The input of a network", x, self.layers[0].weight.shape[0])
        for k, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            x = self.activation(self.norms[k](x) if self.norms else x)
        return self.layers[-1](x)


class SymmetricNetwork(eqx.Module):
    r"""A network that is symmetric under a reflection $\rho$: $f(\rho\, x) = \rho\, f(x)$.

    Units come in pairs, one of which sees the reflection of what the other one sees: a
    hidden layer maps the pair $(h, h')$ to
    $(\sigma([h, h'] W + b),\; \sigma([h', h] W + b))$, beginning with $(x, \rho\, x)$, and
    the last one to $\tfrac12 ([h, h'] W + b + \rho\, ([h', h] W + b))$. It costs as much as
    an `MLP` with as many units.

    **Arguments:**

    - `layers`: the layers of one unit of each pair.
    - `reflect`: reflection of the input.
    - `reflect_output`: reflection of the output; None if it stays the same, as a value.
    - `activation`: see `MLP`.

    ??? cite "Reference"
        Ravanbakhsh, Schneider, Póczos, *Equivariance through parameter-sharing*, 2017;
        Abdolhosseini et al., *On learning symmetric locomotion*, 2019, section 4.4.
    """

    layers: tuple[Linear, ...]
    reflect: SignedPermutation
    reflect_output: SignedPermutation | None
    activation: Callable = eqx.field(static=True, converter=_importable)

    @staticmethod
    def create(
        key: PRNGKeyArray,
        sizes: tuple[int, ...],
        reflect: SignedPermutation,
        reflect_output: SignedPermutation | None = None,
        activation: Callable = jax.nn.relu,
        *,
        last_scale: float = 1.0,
        dtype: Any = jnp.float32,
    ) -> "SymmetricNetwork":
        r"""Create a network, see `MLP.create`; weights are initialized before the mean of
        both sides, which makes first outputs smaller by $\sqrt2$.

        **Raises:** `ValueError` if a hidden layer has an odd number of units, or a
        reflection has another size than what it reflects.
        """
        for what, each, size in (
            ("input", reflect, sizes[0]),
            ("output", reflect_output, sizes[-1]),
        ):
            if each is not None and len(each.index) != size:
                raise ValueError(
                    f"The reflection of the {what} must have {size} entries, got "
                    f"{len(each.index)}."
                )
        if odd := [n for n in sizes[1:-1] if n % 2]:
            raise ValueError(
                "The hidden layers of a symmetric network must have an even number of "
                f"units, which come in pairs, got {odd[0]}."
            )
        layers = []
        for k, (inputs, outputs) in enumerate(zip(sizes[:-1], sizes[1:])):
            last = k == len(sizes) - 2
            scale, units = (last_scale, outputs) if last else (1.0, outputs // 2)
            layer_key = jr.fold_in(key, k)
            layers.append(Linear.create(layer_key, inputs, units, scale, dtype))
        return SymmetricNetwork(tuple(layers), reflect, reflect_output, activation)

    def whole(self) -> MLP:
        """Return the same function as a network of all units."""
        layers, last = [], len(self.layers) - 1
        for k, layer in enumerate(self.layers):
            own, other = layer.weight, self._reflected(layer.weight, k)
            if k < last:
                weight = jnp.concatenate([own, other], axis=1)
                bias = jnp.concatenate([layer.bias, layer.bias])
            else:
                back = self.reflect_output or (lambda x: x)
                weight = 0.5 * (own + back(other))
                bias = 0.5 * (layer.bias + back(layer.bias))
            layers.append(Linear(weight, bias))
        return MLP(tuple(layers), (), self.activation)

    def _reflected(self, weight, k: int):
        """Return the matrix by which the other unit of a pair sees the same input."""
        if k:
            return jnp.roll(weight, len(weight) // 2, axis=0)
        sign = jnp.asarray(self.reflect.sign, weight.dtype)
        return (weight * sign[:, None])[np.argsort(self.reflect.index)]

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        return self.whole()(x)


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


class AbstractInputs(eqx.Module):
    """Inputs of the networks of an agent: parts of its observations.

    Actor and critic may see different parts of a dictionary. An actor that acts on a real
    robot then needs only what `actor_parts` names, while the critic learns from
    `privileged` observations of the simulation.

    **Arguments:**

    - `actor_parts`, `critic_parts`: names of the observations that the network sees; all
        if empty.

    ??? cite "Reference"
        Pinto et al., *Asymmetric actor critic for image-based robot learning*, 2018,
        section 4.
    """

    actor_parts: eqx.AbstractVar[tuple[str, ...]]
    critic_parts: eqx.AbstractVar[tuple[str, ...]]

    @property
    @abc.abstractmethod
    def off_policy_settings(self) -> tuple[str, ...]:
        """Names of settings in use that on-policy agents do not support."""

    @abc.abstractmethod
    def check(self, name: str, obs: Any) -> None:
        """Raise `ValueError` if the agent of that name cannot observe `obs`."""

    @abc.abstractmethod
    def critic(
        self,
        key: PRNGKeyArray,
        obs: Any,
        make: Callable[[PRNGKeyArray, int], Any],
        dtype: Any,
    ) -> Any:
        """Create the network of the critic for observations like `obs`.

        **Arguments:**

        - `make`: `(key, number of inputs) -> network`.
        """

    @abc.abstractmethod
    def actor(
        self,
        key: PRNGKeyArray,
        obs: Any,
        make: Callable[[PRNGKeyArray, int], Any],
        dtype: Any,
        critic: Any = None,
    ) -> Any:
        """Create the network of the actor, or of another one beside the critic.

        **Arguments:** those of `critic`, and

        - `critic`: network of the critic, of which the actor may share a part.
        """

    @abc.abstractmethod
    def policy(self, actor: Any, critic: Any) -> Callable[[Any], Any]:
        """Return the actor as a function of observations."""

    @abc.abstractmethod
    def actor_inputs(self, critic: Any, obs: Any) -> Any:
        """Return the inputs of the actor for rows of observations, constants of its
        loss."""

    @abc.abstractmethod
    def augment(self, obs: Any, key: PRNGKeyArray) -> Any:
        """Change rows of observations at random, for learning."""


class Vectors(AbstractInputs):
    """Observations that are a vector, or a dictionary of vectors, which are concatenated in
    the order of their names. For images, see `eqsim_zoo.vision.Images`.

    **Arguments:** those of `AbstractInputs`.
    """

    actor_parts: tuple[str, ...] = static(())
    critic_parts: tuple[str, ...] = static(())

    @property
    def off_policy_settings(self) -> tuple[str, ...]:
        return ()

    def check(self, name: str, obs: Any) -> None:
        check_inputs(name, self, obs, images=False)

    def critic(self, key, obs, make, dtype):
        return _vector_network(key, obs, make, self.critic_parts)

    def actor(self, key, obs, make, dtype, critic=None):
        return _vector_network(key, obs, make, self.actor_parts)

    def policy(self, actor: Any, critic: Any) -> Callable[[Any], Any]:
        return actor

    def actor_inputs(self, critic: Any, obs: Any) -> Any:
        return obs

    def augment(self, obs: Any, key: PRNGKeyArray) -> Any:
        return obs


class FeaturesNetwork(eqx.Module):
    """A network that takes the features of an observation.

    **Arguments:**

    - `features`: map from observations to vectors.
    - `network`: network that takes the features.
    """

    features: Features
    network: Any

    def __call__(self, obs: Any, *args: Any) -> Any:
        return self.network(self.features(obs), *args)


def _vector_network(key, obs, make, parts) -> Any:
    if is_vector(obs):
        return make(key, obs.shape[0])
    key = jr.split(key)[1]  # The other one is for encoders of images.
    features = Features.create(obs, parts)
    return FeaturesNetwork(features, make(key, features.size(obs)))


def check_on_policy(name: str, inputs: AbstractInputs, *allowed: str) -> None:
    """Raise `ValueError` if `inputs` have settings that an agent would ignore.

    **Arguments:**

    - `name`: name of the agent.
    - `allowed`: names of settings that it supports.
    """
    for setting in inputs.off_policy_settings:
        if setting not in allowed:
            raise ValueError(
                f"`{name}` does not support `{setting}` of `{type(inputs).__name__}`. "
                "Leave it out."
            )


def check_inputs(name: str, inputs: AbstractInputs, obs: Any, *, images: bool) -> None:
    """Raise `ValueError` if an observation does not have the parts that are named, or has
    parts that networks cannot see.

    **Arguments:**

    - `name`: name of the agent.
    - `images`: true if there is an encoder of images.
    """
    for setting in ("actor_parts", "critic_parts"):
        parts = vars(inputs)[setting]
        check_parts(f"{name}.inputs.{setting}", obs, parts)
        check_kinds(used_parts(obs, parts), images)


class Learner(eqx.Module):
    """A network, or any PyTree of networks, and the state of its optimizer.

    The optimizer itself is created where it is used, from hyper-parameters of the agent,
    which may be arrays: `optax.adam(agent.learning_rate)`.

    **Arguments:**

    - `model`: network or PyTree that is trained.
    - `opt_state`: state of the optimizer; None for a model that is not trained by
        gradients.
    """

    model: Any
    opt_state: Any

    @staticmethod
    def create(
        model: Any, optimizer: optax.GradientTransformation | None = None
    ) -> "Learner":
        """Create a learner before its first step; without an optimizer for a model that
        is not trained by gradients."""
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
