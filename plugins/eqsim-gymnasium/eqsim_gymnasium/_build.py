"""Construction of environments and their spaces, and conversion of arguments."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces

import eqsim
from eqsim import AbstractEnv, System
from eqsim.bridges import check_no_auto_reset, randomized, Randomizer
from eqsim.envs import observation_array, reset_options


RENDER_MODES = ("rgb_array",)


def build(
    env: AbstractEnv | str,
    randomize: Randomizer | str | None,
    render_mode: str | None,
    options: dict[str, Any],
) -> AbstractEnv:
    """Create the environment for a name or an object, with options."""
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise ValueError(
            f"`render_mode` must be None or {RENDER_MODES[0]!r}, got {render_mode!r}."
        )
    name = env if isinstance(env, str) else ""
    made = eqsim.make(env, **options) if isinstance(env, str) else env
    if options and not isinstance(env, str):
        raise TypeError(
            f"Options {', '.join(options)} must be left out, because `env` is a "
            f"`{type(env).__name__}`. They apply to an environment that is given by "
            "its name."
        )
    instead = ", and use Gymnasium's autoreset modes and wrappers instead"
    check_no_auto_reset(made, "Gymnasium", instead)
    return randomized(made, randomize, name)


class Start(NamedTuple):
    """Checked reset options; for many environments, with a leading axis except for
    `sys` and `start`."""

    q: Any = None
    qd: Any = None
    context: Any = None
    patch: Any = None
    sys: System | None = None
    start: Any = None


def start(
    env: AbstractEnv, options: Mapping[str, Any] | None, number: int | None = None
) -> Start | None:
    """Convert reset options to arrays of the environment's type; for many environments,
    repeat single vectors."""
    if not options:
        return None
    reset_options({name: None for name in options})  # Refuses unknown names.
    given = Start(**{name: _numbers(env, name, x) for name, x in options.items()})
    if number is None:
        return given

    def each(name, value):
        if value is None or value.shape[:1] == (number,) and value.ndim == 2:
            return value
        if value.ndim != 1:
            raise ValueError(
                f"`options[{name!r}]` must be one vector for all environments, or one "
                f"for each of the {number} environments, got shape {value.shape}."
            )
        return np.broadcast_to(value, (number, *value.shape))

    vectors = ("q", "qd", "context", "patch")
    new = {name: each(name, given._asdict()[name]) for name in vectors}
    return given._replace(**new)


def _numbers(env: AbstractEnv, name: str, value: Any) -> Any:
    if name == "sys" or value is None:
        return value
    if name == "start":
        return jax.tree_util.tree_map(np.asarray, value)
    value = np.asarray(value, np.int32 if name == "patch" else env.sys.dt.dtype)
    if not np.all(np.isfinite(value)):
        raise ValueError(f"`options[{name!r}]` must be finite, got {value}.")
    return value


def checked(action: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Convert actions to an array; check that its shape is right and its values are
    finite."""
    action = np.asarray(action, dtype)
    if action.shape != shape:
        raise ValueError(f"Actions must have shape {shape}, got {action.shape}.")
    if not np.all(np.isfinite(action)):
        raise ValueError(f"Actions must be finite, got {action}.")
    return action


def words(random: np.random.Generator) -> np.ndarray:
    """Draw 64 random bits, from which a sequence of keys starts."""
    return random.integers(0, 2**32, 2, np.uint32)


def metadata(env: AbstractEnv) -> dict[str, Any]:
    """Return the render metadata of an environment."""
    rate = round(1.0 / float(jax.device_get(env.dt)))
    return {"render_modes": list(RENDER_MODES), "render_fps": max(rate, 1)}


class ArraySpec(NamedTuple):
    """Shape, type and bounds of the arrays of a space.

    **Arguments:**

    - `shape`, `dtype`: shape and data type of its elements.
    - `low`, `high`: inclusive bounds, of that shape; infinite if there are none.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    low: np.ndarray
    high: np.ndarray


def from_space(space: spaces.Space) -> Any:
    """Return shape, type and bounds of a Gymnasium space.

    **Arguments:**

    - `space`: a `Box`, `Discrete`, `MultiDiscrete` or `MultiBinary`, or a `Dict` or
        `Tuple` of these.

    **Returns:** an `ArraySpec`; for a dictionary or tuple, one of them per entry.

    **Raises:** `TypeError` for other spaces, whose elements are not arrays of one
    shape.
    """
    if isinstance(space, spaces.Dict):
        return {name: from_space(part) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(from_space(part) for part in space.spaces)
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        count = space.n if isinstance(space, spaces.Discrete) else space.nvec
        low = np.asarray(space.start, space.dtype)
        high = np.asarray(low + count - 1, space.dtype)
    elif isinstance(space, spaces.MultiBinary):
        low, high = np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)
    else:
        raise TypeError(
            "`space` must be a Box, Discrete, MultiDiscrete or MultiBinary space, or "
            f"a Dict or Tuple of these, got {space}."
        )
    return ArraySpec(low.shape, low.dtype, np.array(low), np.array(high))


def action_space(env: AbstractEnv) -> spaces.Box:
    """Return the action space of an environment of eqsim."""
    low, high = np.moveaxis(np.asarray(env.action_range), -1, 0)
    return spaces.Box(low.copy(), high.copy(), dtype=low.dtype)


def observation_space(env: AbstractEnv) -> spaces.Box:
    """Return the observation space of an environment of eqsim, by tracing it.

    **Raises:** `TypeError` if observations are neither floating point nor integer;
    `ValueError` if they are not one array each.
    """
    obs = observation_array(env, "Gymnasium's `Box`")
    shape, dtype = obs.shape, obs.dtype
    if np.issubdtype(dtype, np.floating):
        return spaces.Box(-np.inf, np.inf, shape, dtype)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return spaces.Box(info.min, info.max, shape, dtype)
    raise TypeError(
        f"Observations must be floating-point numbers or integers, got {dtype}."
    )
