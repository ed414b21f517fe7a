"""`train`, `resume` and `load_run`, and the result of a run.

`train` writes the folder of a run, `resume` reads it; both then call `_go`, which takes
turns (`_loop`) until a run ends, and raises if a signal or a full disk ended it.
"""

import dataclasses
import os
import pathlib
import signal
import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu

from eqsim import AbstractAgent, AbstractEnv
from eqsim.bridges import check_type

from ..data.dataset import Dataset
from ..runs.checkpoints import load_checkpoint, read_about
from ..runs.folders import (
    begin_folder,
    BEST,
    check_agents,
    describes_agents,
    extend_config,
    LAST,
    locked,
    read_config,
    read_run,
)
from ..runs.members import Members, own_copy
from ..runs.run import Counters, Run
from ._loop import exempt, Loop
from ._progress import agreed, Bar, gathered, is_first, listening, Silent
from ._turn import nonfinite_of_members
from .callbacks import AbstractCallback, Checkpoint, with_defaults
from .evaluation import Evaluation, Evaluator


@dataclasses.dataclass(frozen=True)
class Result:
    """Result of a run, which `train` and `resume` return and `load_run` reads.

    **Arguments:**

    - `run`: the run.
    - `state`: state of all members, with an axis of members if there are several.
    - `counters`: turns, steps and seconds.
    - `evaluations`: steps and evaluation, for each one of this call, with an axis of
        members.
    - `folder`: folder of the run; None if it was not written.
    """

    run: Run
    state: Any
    counters: Counters
    evaluations: tuple[tuple[int, Evaluation], ...] = ()
    folder: pathlib.Path | None = None

    @property
    def members(self) -> Members:
        """The agents; `members.agent(0)` is the first."""
        return self.run.members

    def member(self, number: int) -> tuple[AbstractAgent, Any]:
        """Return agent and state of one member."""
        return self.members.agent(number), self.members.pick(self.state, number)

    def environment(self) -> AbstractEnv:
        """Return the environment, without auto-reset.

        **Raises:** `ValueError` if the run was trained on a dataset alone.
        """
        return self.run.environment()


class Interrupted(KeyboardInterrupt):
    """Ctrl-C (SIGINT) ended a run after a turn.

    `result` is its `Result`. With a folder, the last checkpoint is on the disk, and
    `resume` continues the run.
    """

    def __init__(self, text: str, result: Result):
        KeyboardInterrupt.__init__(self, text)
        self.result = result


class Terminated(SystemExit):
    """SIGTERM ended a run after a turn, and ends the process with status 143.

    `result` is as of `Interrupted`.
    """

    def __init__(self, result: Result):
        SystemExit.__init__(self, 128 + signal.SIGTERM)
        self.result = result


def ended(number: int, result: Result) -> Interrupted | Terminated:
    """Return the exception of a run that a signal ended."""
    if number == signal.SIGTERM:
        return Terminated(result)
    again = f" Resume with `eqsim resume {result.folder}`." if result.folder else ""
    done = result.counters
    return Interrupted(
        f"Stopped after turn {done.turn}, {done.steps:,} steps.{again}", result
    )


class UnsavedError(OSError):
    """The last checkpoint of a run, or a given initial state, could not be written.

    `result` is the `Result` of the run, which exists in memory only; None if the run did
    not begin. After making room on the disk, `resume` computes the missing turns again.
    """

    result: Result | None = None


def train(
    run: Run,
    *,
    state: Any = None,
    out: str | os.PathLike | None = None,
    overwrite: bool = False,
    callbacks: Sequence[AbstractCallback] = (),
    progress: bool = False,
) -> Result:
    """Train the agents of a run.

    **Arguments:**

    - `run`: agents, environment or dataset, steps, seeds and evaluations.
    - `state`: initial state in the place of `agent.init(key, env)`, such as that of
        `fine_tuned`; with an axis of members if there are several.
    - `out`: folder for metrics, curves and the checkpoints `last.ckpt` and `best.ckpt`.
    - `overwrite`: true to delete a run in that folder.
    - `callbacks`: observers of each turn. With a folder, `JSONLines`, `CSV`, `Checkpoint` and
        `Curves` are added, unless callbacks of these classes are given.
    - `progress`: true for a bar, or lines without a terminal.

    Ctrl-C (SIGINT) or SIGTERM ends the run after the current turn, with a checkpoint, by
    an exception: later lines of a script do not run. With several
    processes (`jax.distributed`, `jax.set_mesh(device_mesh())`) all of them call this
    alike; process 0 writes and logs.

    **Raises:** `TypeError` if an argument has a wrong type; `ValueError` if one is out of
    range; `FileExistsError` if the folder
    holds a run; `FloatingPointError` if numbers are not finite, of all members;
    `UnsavedError` if the last checkpoint could not be written; `Interrupted`, a
    `KeyboardInterrupt`, after Ctrl-C; `Terminated`, a `SystemExit`, after SIGTERM. The last
    three have the `result`.
    """
    begin = time.monotonic()
    check_type(
        "run", run, Run, "a `Run`", "Create one, such as `Run(PPO(), env, 1e6)`."
    )
    _check_callbacks(callbacks)
    source = run.source()
    _check_start(state, run.members.skeleton(source))  # No file is written before.
    folder = None if out is None else pathlib.Path(out)
    writes = folder if is_first() else None
    if writes is not None:
        writes.mkdir(parents=True, exist_ok=True)
    with locked(writes):
        if writes is not None:
            begin_folder(writes, run, overwrite, state is not None)
        start = own_copy(state), Counters()
        return _go(begin, run, source, start, folder, callbacks, progress)


def _check_callbacks(callbacks: Any) -> None:
    several = "Pass a list, such as `[EarlyStop(...)]`."
    check_type("callbacks", callbacks, Sequence, "a sequence", several)
    for k, callback in enumerate(callbacks):
        check_type(f"callbacks[{k}]", callback, AbstractCallback, "a callback")


def resume(
    folder: str | os.PathLike,
    *,
    more_steps: int | float = 0,
    agent: AbstractAgent | Sequence[AbstractAgent] | None = None,
    env: str | AbstractEnv | None = None,
    data: Dataset | None = None,
    eval_env: AbstractEnv | None = None,
    callbacks: Sequence[AbstractCallback] = (),
    progress: bool = False,
) -> Result:
    """Resume a run from its last checkpoint. On the same machine with the same versions,
    the result is bit-equal to that of an uninterrupted run. Rows of metrics after that
    checkpoint are replaced.

    **Arguments:**

    - `folder`: folder of the run.
    - `more_steps`: number of control steps to add.
    - `agent`, `env`, `data`, `eval_env`: those of the run, where they were given as objects.
        An agent whose class is registered in `eqsim.AGENTS` is made again without.
    - `callbacks`, `progress`: arguments of `train`.

    **Raises:** `FileNotFoundError` if there is no run; `CheckpointError` if its checkpoint
    is damaged or does not fit; `ValueError` if the agent is another one, or the run is
    complete, or began with a given `state` of which there is no checkpoint;
    `FloatingPointError`, `UnsavedError`, `Interrupted` and `Terminated` as `train`.

    An environment that differs from that of the run causes a warning, as in `load_run`.
    """
    begin, folder = time.monotonic(), pathlib.Path(folder)
    _check_callbacks(callbacks)
    run = read_run(folder, agent, env, data, eval_env)
    with locked(folder if is_first() else None):
        source = run.source()
        state, counters = _latest(folder, run, source)
        if more_steps:
            run = run.longer(more_steps)
            if is_first():
                extend_config(folder, run)
        elif counters.steps >= run.steps:
            raise ValueError(
                f"The run in {str(folder)!r} is complete: {counters.steps:,} of "
                f"{run.steps:,} steps. To extend it, state how many more steps to "
                f"take (`eqsim resume {folder} --steps 1e6`, or `more_steps`)."
            )
        start = state, counters
        return _go(begin, run, source, start, folder, callbacks, progress)


def _latest(folder: pathlib.Path, run: Run, source: Any) -> tuple[Any, Counters]:
    """Read the last checkpoint of a run; None and zeros if there is none."""
    path = folder / LAST
    if not path.exists():
        if read_config(folder).get("given", False):
            raise ValueError(
                f"The run in {str(folder)!r} began with a given initial state, but has "
                "no checkpoint of it. Start it again with that state."
            )
        return None, Counters()
    state, counters = _checkpoint(folder, path, run, source)
    if not jax.sharding.get_abstract_mesh().empty:
        # Devices that share the arrays get them as `init` hands them out.
        like = run.members.init(source)
        put = lambda x, y: jax.device_put(x, y.sharding) if eqx.is_array(x) else x
        state = jtu.tree_map(put, state, like)
    return state, counters


def _checkpoint(
    folder: pathlib.Path, path: pathlib.Path, run: Run, source: Any
) -> tuple[Any, Counters]:
    about = read_about(path)
    agents: Any = about.get("agents")
    stored: Any = about.get("counters")
    known = isinstance(stored, dict) and {*stored} <= {*Counters._fields}
    if not describes_agents(agents) or not known:
        raise ValueError(
            f"{str(path)!r} is not the checkpoint of a run, which has `agents` and "
            "`counters` in its metadata."
        )
    check_agents(folder, agents, run.members)
    state, _ = load_checkpoint(path, run.members.skeleton(source))
    return state, Counters.from_json(stored)


def load_run(
    folder: str | os.PathLike,
    *,
    best: bool = False,
    agent: AbstractAgent | Sequence[AbstractAgent] | None = None,
    env: str | AbstractEnv | None = None,
    data: Dataset | None = None,
) -> Result:
    """Load a run and one of its checkpoints.

    **Arguments:**

    - `folder`: folder of the run.
    - `best`: true for the checkpoint of the evaluation with the highest mean return over
        the seeds of an agent, false for the last one.
    - `agent`, `env`: those of the run, where they were given as objects. An agent whose
        class is registered in `eqsim.AGENTS` is made again without.
    - `data`: dataset of the run, if it was trained without an environment.

    **Raises:** `FileNotFoundError` if a file is missing; `CheckpointError` if a file is
    damaged or does not fit; `ValueError` if the run cannot be made again.

    An environment with other settings, or whose robot has other parameters, causes the
    warning `EnvironmentWarning`, which names the differences.
    """
    folder = pathlib.Path(folder)
    run = read_run(folder, agent, env, data, learns=False)
    path = folder / (BEST if best else LAST)
    state, counters = _checkpoint(folder, path, run, run.source())
    return Result(run, state, counters, (), folder)


def _go(
    begin: float,
    run: Run,
    source: Any,
    start: tuple[Any, Counters],
    folder: pathlib.Path | None,
    callbacks: Sequence[AbstractCallback],
    progress: bool,
) -> Result:
    shown = Bar() if progress and is_first() else Silent()
    observers = with_defaults(callbacks, folder)
    try:
        with listening(shown) as interrupt:
            state, counters = start
            given = state is not None and not counters.turn
            if state is None:
                state = run.members.init(source)
            if not counters.turn:
                broken = nonfinite_of_members(run.members, state)
                counters = counters._replace(exempt=exempt(broken, state))
            try:
                for observer in observers:
                    observer.start(run, folder if is_first() else None, counters.turn)
                if given:
                    _save_start(gathered(state), counters, observers, folder)
                evaluator = Evaluator(run, state)
                told = evaluator, observers, shown
                loop = Loop(run, source, state, counters, *told, begin)
                # The loop gives memory of states away: keep no other name for them.
                del start, state
                loop.go(interrupt)
            finally:
                for observer in observers:
                    observer.close()
    finally:
        shown.close()
    found = tuple(loop.evaluations)
    result = Result(run, loop.state, loop.counters, found, folder)
    if loop.unsaved:
        error = UnsavedError(
            f"The run in {str(folder)!r} ended after turn {loop.counters.turn}, which could "
            f"not be written ({loop.unsaved}). {loop.kept()} Make room on the disk and "
            "resume the run; `result` of this error has the state."
        )
        error.result = result
        raise error
    if interrupt.number:
        raise ended(interrupt.number, result)
    return result


def _save_start(
    state: Any,
    counters: Counters,
    observers: Sequence[AbstractCallback],
    folder: pathlib.Path | None,
) -> None:
    """Write a given initial state, which cannot be computed again."""
    savers = [x for x in observers if isinstance(x, Checkpoint)]
    why = "".join([saver.save(state, counters) for saver in savers])
    if agreed(int(bool(why)))[0]:
        raise UnsavedError(
            f"The initial state of the run in {str(folder)!r} could not be written "
            f"({why}). Free some disk space and start the run again, with "
            "`overwrite=True`."
        )


def _check_start(state: Any, skeleton: Any) -> None:
    """Raise `ValueError` unless a state has the structure of the initial one."""
    if state is None:
        return
    shape = lambda x: (x.shape, x.dtype) if eqx.is_array(x) else x
    like = lambda x: isinstance(x, jax.ShapeDtypeStruct)
    ours = jtu.tree_map(shape, state)
    theirs = jtu.tree_map(
        lambda x: (x.shape, x.dtype) if like(x) else x, skeleton, is_leaf=like
    )
    if not bool(eqx.tree_equal(ours, theirs)):
        raise ValueError(
            f"`state` is a `{type(state).__name__}` whose shapes differ from those of "
            "`agent.init` for all members. Create it with the same agent and "
            "environment, in `training_env`."
        )
