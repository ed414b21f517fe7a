"""Construction of environments from options of TorchRL."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import PRNGKeyArray

import eqsim
from eqsim import AbstractEnv, DomainRandomization, System, TimeLimit
from eqsim.wrappers import AbstractWrapper, ActionRepeat, layers, Lifetime


Randomizer = Callable[[PRNGKeyArray, System], System]


def build(
    env: AbstractEnv,
    name: str,
    randomize: Randomizer | str | None,
    frame_skip: int,
    episode_length: int | None,
) -> AbstractEnv:
    """Wrap an environment as requested by options.

    **Arguments:**

    - `name`: name of the environment whose presets `randomize` refers to.
    """
    if not isinstance(env, AbstractEnv):
        raise TypeError(
            f"`env` is {env!r}: an environment of eqsim is expected; `EqsimEnv` takes the "
            "name of one."
        )
    for held in layers(env):
        if isinstance(held, AbstractWrapper) and held.lifetime is Lifetime.RUN:
            raise ValueError(
                f"`{type(held).__name__}` is kept over episodes, but TorchRL resets "
                "environments from outside. Leave it out, and use TorchRL's transforms."
            )
    if randomize is not None:
        env = DomainRandomization(env, _randomizer(name, randomize))
    if frame_skip != 1:
        env = ActionRepeat(env, frame_skip)
    return env if episode_length is None else TimeLimit(env, episode_length)


def _randomizer(name: str, randomize: Randomizer | str) -> Randomizer:
    if not isinstance(randomize, str):
        return randomize
    presets = eqsim.randomize.presets(name)
    if randomize not in presets:
        raise ValueError(
            f"`randomize` is {randomize!r}, but there is no such preset. Presets: "
            f"{', '.join(presets) or 'none'}; or pass a function (key, sys) -> sys."
        )
    return presets[randomize]


def action_table(
    env: AbstractEnv, actions: int | Sequence[Sequence[float]] | None
) -> np.ndarray | None:
    """Return the action for each integer, as rows.

    **Arguments:**

    - `actions`: the rows; or the number of values from the lower to the upper bound of
        every actuator, in all combinations.
    """
    if actions is None:
        return None
    low, high = np.moveaxis(np.asarray(env.action_range), -1, 0)
    if isinstance(actions, int):
        if actions < 2 or not np.all(np.isfinite([low, high])):
            raise ValueError(
                f"`discrete_actions` is {actions}, for actions from {low} to {high}: at "
                "least 2 values between finite bounds are expected, or a table of actions."
            )
        if actions ** len(low) > 10_000:
            raise ValueError(
                f"`discrete_actions` is {actions}, which makes {actions ** len(low):,} "
                f"combinations for {len(low)} actuators. Pass a table of actions instead."
            )
        values = np.linspace(low, high, actions)
        grid = np.meshgrid(*values.T, indexing="ij")
        return np.stack([x.reshape(-1) for x in grid], -1).astype(low.dtype)
    table = np.asarray(actions, low.dtype)
    if table.ndim != 2 or table.shape[1] != len(low) or not np.all(np.isfinite(table)):
        raise ValueError(
            f"`discrete_actions` has shape {table.shape}: rows of {len(low)} finite "
            "numbers, one per actuator, are expected."
        )
    return table
