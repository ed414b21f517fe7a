from typing import Any

from eqsim import AbstractEnv


def to_dm_env(env: AbstractEnv, *, max_steps: int | None = None, seed: int = 0) -> Any:
    """An environment of eqsim as a `dm_env.Environment`.

    After the last step of an episode the next call of `step` begins another one, as
    dm_env has it. The discount is 0 where the task has ended, and 1 at a time limit.

    **Arguments:**

    - `env`: without what resets itself; a time limit of its own is respected.
    - `max_steps`: time limit, in control steps.
    - `seed`: of the random starts.

    **Raises:** `ImportError` without dm_env; `ValueError` if `env` resets itself or the
    limit is not positive.
    """
    try:
        from ._dm import DmEnv
    except ImportError as error:
        raise ImportError(
            "`to_dm_env` needs dm_env. Run `pip install 'eqsim-adapters[dm-env]'`."
        ) from error
    return DmEnv(env, max_steps, seed)
