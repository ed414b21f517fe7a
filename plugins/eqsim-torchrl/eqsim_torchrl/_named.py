"""Environments of eqsim by name."""

from collections.abc import Mapping
from typing import Any

import eqsim

from ._env import EqsimWrapper


_NOT_NEEDED = {
    "cache_clear_frequency": "a program is compiled once, and no cache grows: leave it out",
    "num_workers": "a batch is one program: pass a larger `batch_size`; for processes use "
    "`torchrl.envs.ParallelEnv`",
    "camera_id": "pass `camera`, an `eqsim.render.Camera`",
    "render_kwargs": "pass `camera`, `width` and `height`",
}
"""Options of TorchRL's `BraxEnv` without a counterpart."""


class EqsimEnv(EqsimWrapper):
    """An environment of eqsim by name, as an `EqsimWrapper`.

    `EqsimEnv.available_envs` lists all names, including those of plugins.

    **Arguments:**

    - `name`: name of the environment, for instance `"ant"`.
    - `pipeline`: a pipeline, or a name such as `"spring"`; by default that of the
        environment.
    - `env_options`: options of the environment, as a dictionary, see `eqsim.make`.
    - `options`: options of `EqsimWrapper`.

    **Raises:** `TypeError` for an option of `BraxEnv` that has no counterpart;
    `ValueError` or `TypeError` if an option is invalid.

    !!! example

        ```python
        env = EqsimEnv("ant", batch_size=[64], pipeline="spring", episode_length=1000)
        ```
    """

    def __init__(
        self,
        name: str,
        *,
        pipeline: Any = None,
        env_options: Mapping[str, Any] | None = None,
        **options: Any,
    ):
        for option in _NOT_NEEDED.keys() & options.keys():
            raise TypeError(
                f"`EqsimEnv` has no option `{option}`: {_NOT_NEEDED[option]}."
            )
        env = eqsim.make(name, pipeline=pipeline, **(env_options or {}))
        super().__init__(env, _name=name, **options)
        self.env_name = name
