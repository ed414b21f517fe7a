from typing import Any

from eqsim import AbstractEnv


def to_dm_env(env: AbstractEnv, *, max_steps: int | None = None, seed: int = 0) -> Any:
    """Convert an environment of eqsim to a `dm_env.Environment`.

    After the last step of an episode, the next call of `step` starts another one, as
    specified by dm_env. The discount is 0 after termination, and 1 after truncation.

    **Arguments:**

    - `env`: environment without auto-reset; its own time limit is respected.
    - `max_steps`: time limit, in control steps.
    - `seed`: seed of the initial states.

    **Raises:** `ImportError` if dm_env is not installed; `ValueError` if `env` resets
    itself or the limit is not positive.
    """
    try:
        from ._dm import DmEnv
    except ImportError as error:
        raise ImportError(
            "`to_dm_env` needs dm_env. Run `pip install 'eqsim-adapters[dm-env]'`."
        ) from error
    return DmEnv(env, max_steps, seed)
