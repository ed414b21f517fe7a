"""Environments of eqsim by name."""

from collections.abc import Mapping
from typing import Any

import eqsim

from ._env import EqsimWrapper


class _Names:
    """The names of all environments, as a class attribute."""

    def __get__(self, instance: Any, owner: type) -> list[str]:
        return list(eqsim.ENVS.names())


class EqsimEnv(EqsimWrapper):
    """An environment of eqsim by name, as an `EqsimWrapper`.

    `EqsimEnv.available_envs` lists all names, including those of plugins.

    **Arguments:**

    - `name`: name of the environment, for instance `"ant"`.
    - `pipeline`: a pipeline, or a name such as `"spring"`; by default that of the
        environment.
    - `env_options`: options of the environment, as a dictionary, see `eqsim.make`.
    - `options`: options of `EqsimWrapper`.

    !!! example

        ```python
        env = EqsimEnv("ant", batch_size=[64], pipeline="spring", episode_length=1000)
        ```
    """

    available_envs = _Names()

    def __init__(
        self,
        name: str,
        *,
        pipeline: Any = None,
        env_options: Mapping[str, Any] | None = None,
        **options: Any,
    ):
        env = eqsim.make(name, pipeline=pipeline, **(env_options or {}))
        super().__init__(env, _name=name, **options)
        self.env_name = name
