"""Skill dynamics of DADS, and the reward that follows from them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._distributions import NormalMixture
from ._networks import MLP


class SkillDynamics(eqx.Module):
    r"""$q(\Delta | x, z)$: how a descriptor $x$ changes in a step under a skill.

    A mixture of normal densities, of variance 1 or of one that is learned.

    **Arguments:**

    - `network`: network of the skill and the descriptor without its first `omitted` entries.
    - `components`: number of components of the mixture.
    - `unit`: true if variances are 1.
    """

    network: MLP
    omitted: int = eqx.field(static=True)
    components: int = eqx.field(static=True)
    unit: bool = eqx.field(static=True)

    def __call__(
        self,
        descriptor: Float[Array, " n"],
        skill: Float[Array, " k"],
        std_range: Float[Array, "2"],
    ) -> NormalMixture:
        """Return the density of the change.

        **Arguments:**

        - `std_range`: limits of deviations that are learned.
        """
        out = self.network(jnp.concatenate([descriptor[self.omitted :], skill]))
        logits, rest = out[: self.components], out[self.components :]
        if self.unit:
            mean = rest.reshape(self.components, -1)
            return NormalMixture(logits, mean, jnp.zeros_like(mean))
        mean, raw = jnp.split(rest.reshape(self.components, -1), 2, axis=1)
        std = jnp.clip(jax.nn.softplus(raw), *std_range.astype(raw.dtype))
        return NormalMixture(logits, mean, jnp.log(std))


def predictability(
    model: SkillDynamics,
    descriptor: Float[Array, "rows n"],
    skill: Float[Array, "rows k"],
    change: Float[Array, "rows n"],
    others: Float[Array, "skills k"],
    std_range: Float[Array, "2"],
    *,
    itself: bool,
) -> Float[Array, " rows"]:
    r"""Compute the reward of `DADS` for each row.

    **Arguments:**

    - `others`: skills to compare with.
    - `std_range`: limits of deviations that are learned.
    - `itself`: true if the row's own skill is to be compared with, too: not if it is
        among `others`.
    """
    density = lambda x, z: model(x, z, std_range)
    own = jax.vmap(lambda x, z, d: density(x, z).log_prob(d))(descriptor, skill, change)
    if descriptor.shape[1] == model.omitted:
        # Nothing but the skill is seen: one mixture per skill serves all rows.
        mixtures = jax.vmap(lambda z: density(descriptor[0], z))(others)
        per_row = lambda d: jax.vmap(lambda mixture: mixture.log_prob(d))(mixtures)
        found = jax.vmap(per_row)(change)
    else:
        per_row = lambda x, d: jax.vmap(lambda z: density(x, z).log_prob(d))(others)
        found = jax.vmap(per_row)(descriptor, change)
    off = jnp.clip(found - own[:, None], -50.0, 50.0)
    if itself:
        off = jnp.concatenate([off, jnp.zeros_like(off[:, :1])], axis=1)
    return jnp.log(float(off.shape[1])) - jax.nn.logsumexp(off, axis=1)
