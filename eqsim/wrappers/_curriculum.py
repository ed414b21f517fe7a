"""A curriculum of terrain: each environment has a level, which follows what its robot reached.

`TerrainCurriculum` places robots on the patches of a `TerrainGrid`. Its state is drawn anew with
each episode, except the patch: `AutoReset` passes it from one episode to the next
(`AbstractCarryOver`).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._errors import check_key
from ..envs import AbstractEnv, check_action, reset_options, ResetOptions, Timestep
from ..model import JointKind
from ..model.arrays import as_array
from ..terrain import ground_height, TerrainGrid
from ..terrain.surface import placed_field
from ._episodes import episode_robot
from ._wrapper import AbstractCarryOver, Lifetime, Options


class Walked(eqx.Module):
    """What a robot did in an episode.

    - `distance`: horizontal distance of its last position from its first one, m.
    - `commanded`: integral of the commanded speed over the episode, m.
    - `length`: length of the sides of a patch, m.
    - `level`: level of the episode.
    """

    distance: Float[Array, ""]
    commanded: Float[Array, ""]
    length: Float[Array, ""]
    level: Int[Array, ""]


class WalkedDistance(eqx.Module):
    """Criterion of a curriculum: one level up if the robot walked farther than a part of
    the patch, else one down if it walked less than a share of the commanded distance.

    **Arguments:**

    - `part`: part of the length of a patch.
    - `share`: share of the commanded distance.

    ??? cite "Reference"
        Rudin, Hoeller, Reist and Hutter, *Learning to Walk in Minutes Using Massively
        Parallel Deep Reinforcement Learning*, 2022, section 2.4.
    """

    part: Float[Array, ""] = eqx.field(converter=as_array, default=0.5)
    share: Float[Array, ""] = eqx.field(converter=as_array, default=0.5)

    def __call__(self, walked: Walked) -> Int[Array, ""]:
        """Return the change of the level: -1, 0 or 1."""
        up = walked.distance > self.part * walked.length
        down = walked.distance < self.share * walked.commanded
        return jnp.where(up, 1, jnp.where(down, -1, 0)).astype(jnp.int32)


class CurriculumState(eqx.Module):
    """State of `TerrainCurriculum`.

    - `patch`: level and column of the patch of this episode.
    - `start`: x and y of the robot at the start of the episode, m.
    - `commanded`: integral of the commanded speed so far, m.
    """

    inner: Any
    patch: Int[Array, "2"]
    start: Float[Array, "2"]
    commanded: Float[Array, ""]


class TerrainCurriculum(AbstractCarryOver):
    """Curriculum of terrain: each environment starts its episodes on a patch of a grid,
    whose level rises and falls with what the robot reached.

    Initial states are those of `env`, moved to the middle of the patch and up by the
    height of the ground there. The first column is random and stays the same, with one
    kind of terrain; the level changes when `AutoReset` starts the next episode. A robot
    that passed the last level gets a random one.

    !!! example

        ```python
        spec = with_height_field("scene.xml", *grid.shape, grid.size)
        sys = with_terrain(load_mjcf(spec), grid.heights(key))
        env = AutoReset(TimeLimit(TerrainCurriculum(Task(sys), grid), 1000))
        ```

    **Arguments:**

    - `env`: environment of one episode, whose robot has a free joint and stands on a
        height field of the resolution of `grid`.
    - `grid`: the patches.
    - `criterion`: function of `Walked` that returns the change of the level.
    - `commanded_speed`: function of the state of `env` that returns the commanded speed,
        m/s; by default 0, so that `WalkedDistance` never lowers the level.
    - `first_level`: first levels are uniform from 0 to this one.
    - `spread`: largest distance of starts from the middle of a patch along x and y, m.

    `reset` accepts the option `patch`, level and column.

    **Raises:** `ValueError` if the resolution differs, or the robot has no free joint or
    no height field in the world.
    """

    env: AbstractEnv
    grid: TerrainGrid
    criterion: Callable[[Walked], Int[Array, ""]] = eqx.field(
        default_factory=WalkedDistance
    )
    commanded_speed: Callable[[Any], Float[Array, ""]] | None = None
    first_level: Int[Array, ""] = eqx.field(
        converter=lambda n: jnp.asarray(n, jnp.int32) if isinstance(n, int) else n,
        default=0,
    )
    spread: Float[Array, ""] = eqx.field(converter=as_array, default=0.3)

    def __check_init__(self):
        fields = self.sys.height_fields
        field, _, _ = placed_field(self.sys)
        shape = fields.rows[field], fields.columns[field]
        if shape != self.grid.shape:
            raise ValueError(
                f"The height field {fields.names[field]!r} has the resolution {shape} (rows, "
                f"columns), but the grid of terrain has {self.grid.shape}. Load the robot "
                "with `eqsim.io.with_height_field(source, *grid.shape, grid.size)`."
            )
        self._free_joint()

    lifetime = Lifetime.EPISODE

    def _free_joint(self) -> int:
        """Return where the coordinates of the first free joint begin."""
        joints = self.sys.joints
        for kind, start in zip(joints.kinds, joints.q_starts):
            if kind is JointKind.FREE:
                return start
        raise ValueError(
            f"`TerrainCurriculum` moves the free joint of a robot, but the joints of this "
            f"one are {list(joints.names)}. Add a `<freejoint/>` to its root link."
        )

    def reset(
        self, key: PRNGKeyArray, options: Options = None
    ) -> tuple[CurriculumState, Timestep]:
        options = reset_options(options)
        check_key(key)
        key_reset, key_level, key_column, key_place = jr.split(key, 4)
        patch = options.patch
        if patch is None:
            level = jr.randint(key_level, (), 0, self.first_level + 1, jnp.int32)
            column = jr.randint(key_column, (), 0, len(self.grid.kinds), jnp.int32)
            patch = jnp.stack([level, column])
        last = jnp.array([self.grid.levels - 1, len(self.grid.kinds) - 1], jnp.int32)
        patch = jnp.clip(jnp.asarray(patch, jnp.int32), 0, last)
        inner = ResetOptions(
            options.q, options.qd, options.sys, options.context, start=options.start
        )
        if options.q is None:
            inner = self._moved(key_reset, key_place, patch, inner)
        state, timestep = self.env.reset(key_reset, inner)
        start = self._place(state)
        return CurriculumState(state, patch, start, jnp.zeros_like(start[0])), timestep

    def _moved(
        self,
        key: PRNGKeyArray,
        key_place: PRNGKeyArray,
        patch: Any,
        given: ResetOptions,
    ) -> ResetOptions:
        """Return the initial state that `env` draws, moved to a patch."""
        drawn, _ = self.env.reset(key, given)
        sys, physics = episode_robot(self.env, drawn), self.env.physics(drawn)
        field, pos, rot = placed_field(sys)
        heights = sys.height_fields.grid(field)
        at = self.grid.spawn(key_place, patch[0], patch[1], heights, self.spread)
        q, free = physics.q, self._free_joint()
        x, y = q[free], q[free + 1]
        x = x + (pos[0] + rot.xx * at[0] + rot.xy * at[1]).astype(q.dtype)
        y = y + (pos[1] + rot.yx * at[0] + rot.yy * at[1]).astype(q.dtype)
        z = q[free + 2] + ground_height(sys, x, y)
        q = q.at[free : free + 3].set(jnp.stack([x, y, z]))
        return ResetOptions(q, physics.qd, given.sys, given.context, start=given.start)

    def _place(self, state: Any) -> Float[Array, "2"]:
        free = self._free_joint()
        return self.env.physics(state).q[free : free + 2]

    def step(
        self, state: CurriculumState, action: Float[Array, " nu"]
    ) -> tuple[CurriculumState, Timestep]:
        check_action(self, action)
        inner, timestep = self.env.step(state.inner, action)
        commanded = state.commanded
        if self.commanded_speed is not None:
            commanded = commanded + self.commanded_speed(inner) * self.dt
        return CurriculumState(inner, state.patch, state.start, commanded), timestep

    def progress(self, state: CurriculumState) -> dict[str, Float[Array, ""]]:
        """Return the level."""
        return {"level": state.patch[0].astype(state.start.dtype)}

    def next_options(self, key: PRNGKeyArray, state: CurriculumState) -> ResetOptions:
        away = self._place(state.inner) - state.start
        walked = Walked(
            jnp.linalg.norm(away), state.commanded, self.grid.length, state.patch[0]
        )
        change, levels = self.criterion(walked).astype(jnp.int32), self.grid.levels
        level = state.patch[0] + change
        any_level = jr.randint(key, (), 0, levels, jnp.int32)
        level = jnp.where(level >= levels, any_level, jnp.maximum(level, 0))
        return ResetOptions(patch=jnp.stack([level, state.patch[1]]))
