"""Skills: what they are drawn from, what tells them apart, and wrappers of both.

In this order: prior distributions; descriptors, which are features of behavior for quality
diversity and skill discovery; the environments of QDax with descriptors, which are registered
under names such as `ant_uni`; `Skills`, which draws a skill per episode; and `Reach`, which
draws a goal for the descriptor.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._errors import check_count, check_key
from ..envs import (
    AbstractEnv,
    Ant,
    check_action,
    HalfCheetah,
    Hopper,
    Humanoid,
    Timestep,
    Walker2d,
)
from ..kinematics import forward
from ..model import candidate_pairs, System
from ..model.arrays import as_array
from ._episodes import episode_robot
from ._wrapper import (
    AbstractReport,
    AbstractStateful,
    check_env,
    Lifetime,
    nested_envs,
    Options,
    vector_size,
)


_LOG_2PI = 1.8378770664093453
_LOG_2 = 0.6931471805599453


class AbstractSkillPrior(eqx.Module):
    """A prior distribution of skills, which are vectors with `size` entries."""

    size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def all(self) -> Float[Array, "size size"] | None:
        """Return all skills, one-hot, or None if they are not finite in number."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        """Draw a skill."""

    @abc.abstractmethod
    def log_prob(self, skill: Float[Array, " size"]) -> Float[Array, ""]:
        """Compute the logarithm of the probability or density of a skill."""

    @abc.abstractmethod
    def project(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """Return the skill nearest to a vector."""


def _check_size(prior: AbstractSkillPrior) -> None:
    check_count(f"{type(prior).__name__}.size", prior.size)


class OneHotSkills(AbstractSkillPrior):
    """Discrete skills, uniformly distributed, as one-hot vectors.

    **Arguments:**

    - `size`: number of skills.

    **Raises:** `ValueError` if the number is not positive.
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        _check_size(self)

    def all(self) -> Float[Array, "size size"]:
        return jnp.eye(self.size)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        return jax.nn.one_hot(jr.randint(key, (), 0, self.size), self.size)

    def log_prob(self, skill: Float[Array, " size"]) -> Float[Array, ""]:
        return jnp.full((), -jnp.log(float(self.size)), skill.dtype)

    def project(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        return jax.nn.one_hot(jnp.argmax(x), self.size, dtype=x.dtype)


class UniformSkills(AbstractSkillPrior):
    r"""Continuous skills, uniformly distributed in $[-1, 1]^d$.

    **Arguments:**

    - `size`: dimension $d$.

    **Raises:** `ValueError` if it is not positive.
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        _check_size(self)

    def all(self) -> None:
        return None

    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        return jr.uniform(key, (self.size,), minval=-1.0, maxval=1.0)

    def log_prob(self, skill: Float[Array, " size"]) -> Float[Array, ""]:
        inside = jnp.all(jnp.abs(skill) <= 1.0)
        return jnp.where(
            inside, jnp.asarray(-self.size * _LOG_2, skill.dtype), -jnp.inf
        )

    def project(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        return jnp.clip(x, -1.0, 1.0)


class NormalSkills(AbstractSkillPrior):
    r"""Continuous skills in $\mathbb{R}^d$ with a standard normal distribution.

    **Arguments:**

    - `size`: dimension $d$.

    **Raises:** `ValueError` if it is not positive.
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        _check_size(self)

    def all(self) -> None:
        return None

    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        return jr.normal(key, (self.size,))

    def log_prob(self, skill: Float[Array, " size"]) -> Float[Array, ""]:
        return -0.5 * jnp.sum(skill**2 + _LOG_2PI)

    def project(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        return x


class AbstractDescriptor(AbstractReport):
    """A wrapper that adds `timestep.descriptor`, a vector that describes the behavior
    of the robot.

    **Raises:** `ValueError` if `env` already has a descriptor.
    """

    def __check_init__(self):
        for held in nested_envs(self.env):
            if isinstance(held, AbstractDescriptor):
                raise ValueError(
                    f"`{type(self).__name__}` contains `{type(held).__name__}`, but a "
                    "timestep has only one descriptor. Remove one of them."
                )

    @property
    @abc.abstractmethod
    def descriptor_names(self) -> tuple[str, ...]:
        """Name of each entry of the descriptor."""

    @property
    @abc.abstractmethod
    def descriptor_range(self) -> Float[Array, "ndescriptor 2"]:
        """Lower and upper limit of each entry of the descriptor."""

    @abc.abstractmethod
    def describe(
        self, state: Any, action: Float[Array, " nu"]
    ) -> Float[Array, " ndescriptor"]:
        """Compute the descriptor of a state under a constant action."""

    def report(
        self, state: Any, action: Float[Array, " nu"], timestep: Timestep
    ) -> Timestep:
        found, where = self.describe(state, action), lambda t: t.descriptor
        return eqx.tree_at(where, timestep, found, is_leaf=lambda x: x is None)


class FeetContact(AbstractDescriptor):
    """Adds a descriptor of feet on the ground: 1 if a shape of the link touches a shape
    of the world, else 0. Derivatives are zero.

    Used by `ant_uni`, `half_cheetah_uni`, `hopper_uni`, `walker2d_uni` and
    `humanoid_uni`, as in QDax (Chalumeau et al. 2024).

    **Arguments:**

    - `env`: the environment.
    - `feet`: names of the links of the feet.

    **Raises:** `ValueError` if a link does not exist, or has no shape that can touch
    the world.
    """

    env: AbstractEnv
    feet: tuple[str, ...] = eqx.field(static=True)

    def __check_init__(self):
        check_env(self, self.env)
        owners = _owners(self.sys, [pair[:2] for pair in candidate_pairs(self.sys)])
        for foot in self.feet:
            if {self.sys.link(foot).index, -1} not in owners:
                raise ValueError(
                    f"No shape of the link {foot!r} can touch the world. Choose a link "
                    "with a shape that collides."
                )

    @property
    def descriptor_names(self) -> tuple[str, ...]:
        return tuple(f"{foot} on the ground" for foot in self.feet)

    @property
    def descriptor_range(self) -> Float[Array, "ndescriptor 2"]:
        return jnp.tile(jnp.array([[0.0, 1.0]]), (len(self.feet), 1))

    def describe(
        self, state: Any, action: Float[Array, " nu"]
    ) -> Float[Array, " ndescriptor"]:
        sys, now = episode_robot(self.env, state), self.physics(state)
        contacts = self.pipeline.contacts(sys, now, action)
        touching = [
            contacts.between(sys, sys.link(foot).index, -1) & (contacts.dist <= 0.0)
            for foot in self.feet
        ]
        return jnp.stack([jnp.any(own) for own in touching]).astype(now.q.dtype)


def _owners(sys: System, geoms) -> list[set[int]]:
    """Return the two links of each pair of shapes."""
    links = sys.geoms.links
    return [{links[first], links[second]} for first, second in geoms]


class TorsoPosition(AbstractDescriptor):
    """Adds the position of the first link, x and y in m, as the descriptor.

    Used by `ant_omni` and `humanoid_omni`, with the limits of QDax (Chalumeau et al.
    2024) and without the reward for running.

    **Arguments:**

    - `env`: the environment.
    - `limit`: largest absolute position, m.
    """

    env: AbstractEnv
    limit: Float[Array, ""] = eqx.field(converter=as_array, default=30.0)

    @property
    def descriptor_names(self) -> tuple[str, ...]:
        return "x", "y"

    @property
    def descriptor_range(self) -> Float[Array, "ndescriptor 2"]:
        return jnp.stack([jnp.stack([-self.limit, self.limit])] * 2)

    def describe(
        self, state: Any, action: Float[Array, " nu"]
    ) -> Float[Array, " ndescriptor"]:
        return forward(episode_robot(self.env, state), self.physics(state).q).pos[0, :2]


def ant_uni(**options: Any) -> FeetContact:
    """Create `Ant` with the descriptor `FeetContact` of size 4.

    **Arguments:** the options of `Ant`.
    """
    return FeetContact(Ant(**options), ("link3", "link6", "link9", "link12"))


def half_cheetah_uni(**options: Any) -> FeetContact:
    """Create `HalfCheetah` with the descriptor `FeetContact` of size 2.

    **Arguments:** the options of `HalfCheetah`.
    """
    return FeetContact(HalfCheetah(**options), ("bfoot", "ffoot"))


def hopper_uni(**options: Any) -> FeetContact:
    """Create `Hopper` with the descriptor `FeetContact` of size 1.

    **Arguments:** the options of `Hopper`.
    """
    return FeetContact(Hopper(**options), ("foot",))


def walker2d_uni(**options: Any) -> FeetContact:
    """Create `Walker2d` with the descriptor `FeetContact` of size 2.

    **Arguments:** the options of `Walker2d`.
    """
    return FeetContact(Walker2d(**options), ("foot", "foot_left"))


def humanoid_uni(**options: Any) -> FeetContact:
    """Create `Humanoid` with the descriptor `FeetContact` of size 2.

    **Arguments:** the options of `Humanoid`.
    """
    return FeetContact(Humanoid(**options), ("right_foot", "left_foot"))


def ant_omni(*, limit: float = 30.0, **options: Any) -> TorsoPosition:
    """Create `Ant` with the descriptor `TorsoPosition` and without the reward for
    running.

    **Arguments:** the options of `Ant`, and

    - `limit`: limit of the position, m.
    """
    options = {"forward_reward_weight": 0.0} | options
    return TorsoPosition(Ant(**options), limit)


def humanoid_omni(*, limit: float = 30.0, **options: Any) -> TorsoPosition:
    """Create `Humanoid` with the descriptor `TorsoPosition` and without the reward for
    running.

    **Arguments:** the options of `Humanoid`, and

    - `limit`: limit of the position, m.
    """
    options = {"forward_reward_weight": 0.0} | options
    return TorsoPosition(Humanoid(**options), limit)


class SkillsState(eqx.Module):
    """State of `Skills`. `key`: key from which the skill is drawn. `draws`: key for the
    resampling times. `count`: number of steps with this skill."""

    inner: Any
    key: PRNGKeyArray
    draws: PRNGKeyArray
    count: Int[Array, ""]


def _as_count(n: Any) -> Any:
    return jnp.asarray(n, jnp.int32) if isinstance(n, int) else n


class Skills(AbstractStateful):
    r"""Draws a skill $z$ from a prior in every episode, which the agent should follow.

    The observation becomes $(o, x, z)$ with the descriptor $x$, or $(o, z)$ if the
    environment has none. `timestep.descriptor` is $x$.

    **Arguments:**

    - `env`: the environment, whose observations are vectors.
    - `prior`: prior distribution of skills.
    - `resample_probability`: probability of drawing another skill after a step within
        an episode.
    - `least_steps`: smallest number of steps with the same skill.

    **Raises:** `ValueError` if observations are not vectors, or `env` resets itself;
    `TypeError` if `prior` is not a prior.

    ??? cite "Reference"
        Eysenbach et al., *Diversity is all you need*, 2019; Sharma et al.,
        *Dynamics-aware unsupervised discovery of skills*, 2020.
    """

    env: AbstractEnv
    prior: AbstractSkillPrior
    resample_probability: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    least_steps: Int[Array, ""] = eqx.field(converter=_as_count, default=1)

    def __check_init__(self):
        if not isinstance(self.prior, AbstractSkillPrior):
            raise TypeError(
                "`Skills.prior` must be a distribution of skills such as "
                f"`OneHotSkills(5)`, got {self.prior!r}."
            )
        vector_size(self, self.env)

    lifetime = Lifetime.EPISODE

    def skill(self, state: SkillsState) -> Float[Array, " size"]:
        """Return the current skill."""
        return self.prior.sample(state.key)

    def reset(
        self, key: PRNGKeyArray, options: Options = None
    ) -> tuple[SkillsState, Timestep]:
        check_key(key)
        key, key_skill, draws = jr.split(key, 3)
        inner, timestep = self.env.reset(key, options)
        state = SkillsState(inner, key_skill, draws, jnp.zeros((), jnp.int32))
        return state, self._report(state, timestep)

    def step(
        self, state: SkillsState, action: Float[Array, " nu"]
    ) -> tuple[SkillsState, Timestep]:
        check_action(self, action)
        inner, timestep = self.env.step(state.inner, action)
        draws, key_chance, key_skill = jr.split(state.draws, 3)
        count = state.count + 1
        chance = jr.uniform(key_chance, (), self.resample_probability.dtype)
        another = (chance < self.resample_probability) & (count >= self.least_steps)
        # The last step of an episode keeps its skill.
        another = another & ~timestep.done
        key = jnp.where(another, key_skill, state.key)
        count = jnp.where(another, jnp.zeros_like(count), count)
        new = SkillsState(inner, key, draws, count)
        return new, self._report(new, timestep)

    def _report(self, state: SkillsState, timestep: Timestep) -> Timestep:
        parts = [self.skill(state)]
        if timestep.descriptor is not None:
            parts = [timestep.descriptor, *parts]

        def extend(obs):
            return jnp.concatenate([obs, *(x.astype(obs.dtype) for x in parts)])

        timestep = eqx.tree_at(lambda t: t.obs, timestep, extend(timestep.obs))
        if timestep.final_obs is None:
            return timestep
        # An environment that resets itself.
        final = extend(timestep.final_obs)
        return eqx.tree_at(lambda t: t.final_obs, timestep, final)


class ReachState(eqx.Module):
    """State of `Reach`. `goal`: goal of the episode."""

    inner: Any
    goal: Float[Array, " ndescriptor"]


class Reach(AbstractStateful):
    r"""Draws a goal $g$ for the descriptor $x$ of the environment in every episode. The
    observation becomes a dictionary of `observation`, `achieved_goal` ($x$) and
    `desired_goal` ($g$). The reward is 0 for a step with $|x - g| \le$ `tolerance`,
    which terminates the episode, and -1 for all other steps. If the inner environment
    terminates, for example after a fall, the episode is truncated instead, because
    termination would be better than further negative rewards.

    **Arguments:**

    - `env`: an environment with a descriptor.
    - `tolerance`: accepted distance, in the units of the descriptor.
    - `goals`: lowest and highest goal of the uniform distribution; by default the range
        of the descriptor.

    **Raises:** `ValueError` if there is no descriptor, `goals` has the wrong shape,
    observations are not vectors, or `env` resets itself.

    ??? cite "Reference"
        Plappert et al., *Multi-goal reinforcement learning: challenging robotics
        environments and request for research*, 2018, section 2.
    """

    env: AbstractEnv
    tolerance: Float[Array, ""]
    goals: Float[Array, "ndescriptor 2"]

    def __init__(
        self,
        env: AbstractEnv,
        tolerance: Any = 0.1,
        goals: Any = None,
    ):
        check_env(self, env)
        self.env, self.tolerance = env, as_array(tolerance)
        described = _descriptor(env)
        self.goals = described.descriptor_range if goals is None else as_array(goals)

    def __check_init__(self):
        size = len(_descriptor(self.env).descriptor_names)
        if self.goals.shape != (size, 2):
            raise ValueError(
                f"`Reach.goals` must have shape ({size}, 2), the lowest and the "
                "highest goal for each component of the descriptor, got "
                f"{self.goals.shape}."
            )
        vector_size(self, self.env)

    lifetime = Lifetime.EPISODE

    def reset(
        self, key: PRNGKeyArray, options: Options = None
    ) -> tuple[ReachState, Timestep]:
        check_key(key)
        key, key_goal = jr.split(key)
        inner, timestep = self.env.reset(key, options)
        low, high = self.goals.T
        part = jr.uniform(key_goal, low.shape, low.dtype)
        state = ReachState(inner, low + part * (high - low))
        return state, self._seen(state, timestep)

    def step(
        self, state: ReachState, action: Float[Array, " nu"]
    ) -> tuple[ReachState, Timestep]:
        check_action(self, action)
        inner, timestep = self.env.step(state.inner, action)
        new = ReachState(inner, state.goal)
        timestep = self._seen(new, timestep)
        off = timestep.obs["achieved_goal"] - state.goal
        reached = jnp.sum(off**2) <= self.tolerance**2
        reward = reached.astype(timestep.reward.dtype) - 1.0
        where = lambda t: (t.reward, t.terms, t.terminated, t.truncated)
        # If the inner task terminates without reaching the goal, truncate: values are
        # bootstrapped.
        cut = (timestep.truncated | timestep.terminated) & ~reached
        parts = reward, {"reach": reward}, reached, cut
        return new, eqx.tree_at(where, timestep, parts)

    def _seen(self, state: ReachState, timestep: Timestep) -> Timestep:
        zero, achieved = jnp.zeros_like(timestep.reward), timestep.descriptor
        assert achieved is not None  # There is an `AbstractDescriptor` inside.
        dtype = timestep.reward.dtype
        obs = {
            "observation": timestep.obs,
            "achieved_goal": achieved.astype(dtype),
            "desired_goal": state.goal.astype(dtype),
        }
        where = lambda t: (t.obs, t.terms)
        return eqx.tree_at(where, timestep, (obs, {"reach": zero}))


def _descriptor(env: AbstractEnv) -> AbstractDescriptor:
    for layer in nested_envs(env):
        if isinstance(layer, AbstractDescriptor):
            return layer
    raise ValueError(
        f"`Reach` needs a descriptor, but `{type(env).__name__}` has none. Wrap an "
        "environment that has one, such as `TorsoPosition(env)` or `ant_omni`."
    )
