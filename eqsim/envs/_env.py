"""What an environment is: the interface that `rollout` and wrappers rely on."""

import abc
from collections.abc import Mapping
from typing import Any, TYPE_CHECKING

import equinox as eqx
import jax
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from .._errors import check_shape
from ..model import State, System
from ..pipelines import AbstractPipeline
from ._options import ResetOptions


class Timestep(eqx.Module):
    """What a reset or a step reports.

    **Arguments:**

    - `obs`: what an agent sees next; arrays in any structure, such as a picture and a
        vector in a dictionary.
    - `reward`: the sum of `terms`.
    - `terminated`: whether the task has ended, for good or bad.
    - `truncated`: whether it was cut off; a time limit sets it, a task does not.
    - `terms`: the reward, term by term.
    - `first`: whether this is the beginning of an episode, and not what an action led
        to. Only `reset` reports that, and `AutoReset` where it resets in a step of its
        own.
    - `final_obs`: below `AutoReset`, what the action led to, before any reset; equal to
        `obs` unless an episode has ended.
    - `descriptor`: below a skill-discovery wrapper, the features that tell skills apart.
    """

    obs: PyTree[Shaped[Array, "..."]]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    terms: dict[str, Float[Array, ""]]
    first: Bool[Array, ""]
    final_obs: PyTree[Shaped[Array, "..."]] | None = None
    descriptor: Float[Array, " ndescriptor"] | None = None

    @property
    def done(self) -> Bool[Array, "..."]:
        """Whether the episode is over, for whichever reason."""
        return self.terminated | self.truncated


class AbstractEnv(eqx.Module):
    """A robot that is stepped by actions: a task, or a wrapper around another
    environment.

    Its state may be any PyTree; `physics` finds the robot's in it. New tasks derive from
    `AbstractTask`, which writes `reset` and `step`.
    """

    if TYPE_CHECKING:
        # A field here would be an argument of every wrapper.
        @property
        def sys(self) -> System:
            """The robot."""
            ...

        @property
        def pipeline(self) -> AbstractPipeline:
            """The physics."""
            ...

    else:
        sys: eqx.AbstractVar[System]
        pipeline: eqx.AbstractVar[AbstractPipeline]

    @property
    @abc.abstractmethod
    def dt(self) -> Float[Array, ""]:
        """Duration of a control step, s."""

    @property
    @abc.abstractmethod
    def action_range(self) -> Float[Array, "nu 2"]:
        """Lower and upper bound of each entry of an action; infinite without one."""

    @property
    def action_size(self) -> int:
        """Number of entries of an action."""
        return self.sys.nu

    @property
    def observation_size(self) -> int:
        """Number of entries of an observation of one environment (traces `reset`).

        **Raises:** `ValueError` if observations are not vectors.
        """
        report = eqx.filter_eval_shape(lambda env: env.reset(jr.key(0))[1], self)
        shapes = [x.shape for x in jtu.tree_leaves(report.obs)]
        if not (isinstance(report.obs, jax.ShapeDtypeStruct) and len(shapes[0]) == 1):
            raise ValueError(
                f"`observation_size` needs vectors as observations; these have arrays of "
                f"shapes {shapes}."
            )
        return report.obs.shape[0]

    @abc.abstractmethod
    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[Any, Timestep]:
        """A random first state, and its report, in which all rewards are zero.

        **Arguments:**

        - `key`: of `jax.random.key`.
        - `options`: where to start instead, see `ResetOptions`; a dictionary will do.

        **Raises:** `ValueError` if the options have unknown names, wrong shapes, or are
        of no use here.
        """

    @abc.abstractmethod
    def step(self, state: Any, action: Float[Array, " nu"]) -> tuple[Any, Timestep]:
        """One control step.

        **Arguments:**

        - `state`: from `reset` or an earlier step.
        - `action`: held for the control step.

        **Returns:** the new state and its report.

        **Raises:** `ValueError` if the action has a wrong shape, or if it is not finite
        and its value is known, which it is not while JAX traces.
        """

    @abc.abstractmethod
    def physics(self, state: Any) -> State:
        """The state of the robot, out of that of the environment."""


def check_action(env: AbstractEnv, action: Any) -> None:
    """Raises `ValueError` unless the action has the right shape and finite numbers."""
    check_shape("action", action, {"nu": env.sys.nu})
    if not isinstance(action, Tracer) and not np.all(np.isfinite(action)):
        raise ValueError(f"`action` is {action}: finite numbers are expected.")
