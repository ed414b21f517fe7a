"""The evaluations of a run, compiled while its turns are."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax

from eqsim import AbstractEnv

from ..blocks.collecting import evaluation_env, evaluation_key
from ..runs._members import Members
from ..runs._plan import Plan
from ._evaluate import (
    episode_keys,
    evaluate_members,
    Evaluation,
    evaluation_of,
    run_members,
)


class Evaluator:
    """Evaluates the members of a run, as `evaluate_members`.

    On a single device the program is compiled beside that of the first turn, which takes
    about as long. On several, `rollout` spreads one member over them.

    **Arguments:**

    - `members`, `env`, `plan`: parts of the run.
    - `state`: state or its shapes.
    """

    def __init__(
        self, members: Members, state: Any, env: AbstractEnv | None, plan: Plan
    ):
        self._members, self._env, self._plan = members, env, plan
        self._program: Future | None = None
        if env is not None and plan.evaluations and len(jax.devices()) == 1:
            self._episode = evaluation_env(env, plan.episode_length)
            length = plan.episode_length
            lowered = run_members.lower(
                members, state, self._episode, self._keys(0), length
            )
            worker = ThreadPoolExecutor(1)
            self._program = worker.submit(lowered.compile)
            worker.shutdown(wait=False)

    def __call__(self, state: Any, turn: int) -> Evaluation:
        plan = self._plan
        if self._program is None:
            assert self._env is not None
            where = self._env, self._keys(turn), plan.episode_length
            return evaluate_members(self._members, state, *where)
        run = self._program.result()
        args = self._members, state, self._episode, self._keys(turn)
        return evaluation_of(self._members, run(*args, plan.episode_length))

    def _keys(self, turn: int) -> Any:
        key = lambda seed: evaluation_key(seed, turn)
        return episode_keys(self._members, key, self._plan.episodes)
