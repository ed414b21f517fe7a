"""Training, and going on with it."""

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu

from eqsim import AbstractAgent, AbstractEnv
from eqsim.bridges import check_type

from ..data.dataset import Dataset
from ..runs._config import read_config, write_config
from ..runs._folder import begin_folder, open_run, run_env, with_state
from ..runs._lock import locked
from ..runs._members import members_of, own_copy
from ..runs._plan import Counters, counters_from_json, Plan
from ..runs._recorded import learners
from ..runs._run import LAST, Run, RunFolder
from ._callbacks import AbstractCallback
from ._evaluator import Evaluator
from ._failures import exempt
from ._interrupt import listening
from ._loop import Loop
from ._processes import agreed, gathered, is_first
from ._progress import Bar, Silent
from ._result import ended, Result, UnsavedError
from ._saving import Checkpoint, with_defaults
from ._turn import nonfinite_of_members


def train(
    agent: AbstractAgent | Sequence[AbstractAgent],
    source: AbstractEnv | Dataset,
    plan: Plan,
    *,
    eval_env: AbstractEnv | None = None,
    state: Any = None,
    out: str | os.PathLike | RunFolder | None = None,
    callbacks: Sequence[AbstractCallback] = (),
    progress: bool = False,
) -> Result:
    """Train an agent, or several that differ in numbers in one program.

    **Arguments:**

    - `agent`: one agent or several; each learns with `plan.num_seeds` seeds.
    - `source`: environment of one episode, to which `TimeLimit` and `AutoReset` are added; or
        a dataset, for agents that learn from one (see `Offline`): a step is an update.
    - `plan`: steps, seeds and evaluations.
    - `eval_env`: environment of evaluations; the source if None, unless that is a dataset.
    - `state`: initial state in the place of `agent.init(key, env)`, such as that of
        `fine_tuned`; with an axis of members if there are several.
    - `out`: folder of the run.
    - `callbacks`: observers of each turn. With a folder, `JSONLines`, `CSV`, `Checkpoint` and
        `Curves` are added, unless callbacks of these classes are given.
    - `progress`: true for a bar, or lines without a terminal.

    Ctrl-C (SIGINT) or SIGTERM ends the run after the current turn, with a checkpoint, by
    an exception: later lines of a script do not run. With several
    processes (`jax.distributed`, `jax.set_mesh(device_mesh())`) all of them call this
    alike; process 0 writes and logs.

    **Raises:** `TypeError` if an argument has a wrong type, such as the class of an agent;
    `ValueError` if one is out of range; `FileExistsError` if the folder
    holds a run; `FloatingPointError` if numbers are not finite, of all members;
    `UnsavedError` if the last checkpoint could not be written; `Interrupted`, a
    `KeyboardInterrupt`, after Ctrl-C; `Terminated`, a `SystemExit`, after SIGTERM. The last
    three have the `result`.
    """
    begin = time.monotonic()
    _check_arguments(source, plan, eval_env, callbacks)
    data, env = (source, eval_env) if isinstance(source, Dataset) else (None, source)
    agents = learners(agent, env, data)
    plan = dataclasses.replace(
        plan,
        evaluations=0 if env is None else plan.evaluations,
        pool_size=0 if data is not None else plan.pool_size,
    )
    place = out if isinstance(out, RunFolder | None) else RunFolder(out)
    folder = None if place is None else pathlib.Path(place.path)
    recipe = None if place is None else place.recipe
    members = members_of(agents, plan.seed, plan.num_seeds)
    run = Run(folder or pathlib.Path(), members, env, plan, recipe, data)
    run, whole = _checked(run, state)
    overwrite = place is not None and place.overwrite
    with _writing(run, folder if is_first() else None, overwrite):
        return _go(begin, run, whole, eval_env or env, folder, callbacks, progress)


def _check_arguments(source: Any, plan: Any, eval_env: Any, callbacks: Any) -> None:
    """Raise `TypeError` if an argument of `train` has a wrong type."""
    make = "Create one, such as `eqsim.make(name)`."
    kinds = "an environment or a dataset"
    check_type("source", source, AbstractEnv | Dataset, kinds, make)
    check_type("plan", plan, Plan, "a `Plan`", "Pass one, such as `Plan(1e6)`.")
    if eval_env is not None:
        check_type("eval_env", eval_env, AbstractEnv, "an environment or None", make)
    several = "Pass a list, such as `[EarlyStop(...)]`."
    check_type("callbacks", callbacks, Sequence, "a sequence", several)
    for k, callback in enumerate(callbacks):
        check_type(f"callbacks[{k}]", callback, AbstractCallback, "a callback")


def _checked(run: Run, state: Any) -> tuple[Run, Any]:
    """Check that a given state belongs to one of the agents, and return the run with it
    and its source. No file is written before."""
    whole = run_env(run)
    _check_start(state, run.members.skeleton(whole))
    return dataclasses.replace(run, state=own_copy(state)), whole


@contextlib.contextmanager
def _writing(run: Run, folder: pathlib.Path | None, overwrite: bool) -> Iterator[None]:
    """Create and lock the folder of a run."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if folder is not None:
            begin_folder(run, overwrite)
        yield


def resume(
    folder: str | os.PathLike,
    *,
    more_steps: int | float = 0,
    agent: AbstractAgent | Sequence[AbstractAgent] | None = None,
    env: AbstractEnv | None = None,
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
    - `more_steps`: number of control steps to add to the plan.
    - `agent`, `env`, `data`, `eval_env`: agent, environment and dataset as given to
        `train`; not needed where that had a `recipe`. With `data`, `env` is its `eval_env`.
    - `callbacks`, `progress`: arguments of `train`.

    **Raises:** `FileNotFoundError` if there is no run; `CheckpointError` if its checkpoint
    is damaged or does not fit; `ValueError` if the agent is another one, or the run is
    complete, or began with a given `state` of which there is no checkpoint;
    `FloatingPointError`, `UnsavedError`, `Interrupted` and `Terminated` as `train`.

    An environment that differs from that of the run causes a warning, as in `load_run`.
    """
    begin = time.monotonic()
    run = open_run(folder, agent, env, data)
    with locked(run.folder if is_first() else None):
        run = _longer(_latest(run), more_steps)
        where = run_env(run), eval_env or run.env, run.folder
        return _go(begin, run, *where, callbacks, progress)


def _latest(run: Run) -> Run:
    """Load a run with its last checkpoint, or its start if there is none."""
    path = run.folder / LAST
    if not path.exists():
        if read_config(run.folder).get("given", False):
            raise ValueError(
                f"The run in {str(run.folder)!r} began with a given initial state, but has "
                "no checkpoint of it. Start it again with that state."
            )
        return run
    run = with_state(run, path)
    if jax.sharding.get_abstract_mesh().empty:
        return run
    # Devices that share the arrays get them as `init` hands them out.
    like = run.members.init(run_env(run))
    put = lambda x, y: jax.device_put(x, y.sharding) if eqx.is_array(y) else x
    return dataclasses.replace(run, state=jtu.tree_map(put, run.state, like))


def _longer(run: Run, more_steps: int | float) -> Run:
    if more_steps:
        run = dataclasses.replace(run, plan=run.plan.longer(more_steps))
        if is_first():
            write_config(run)
        return run
    done = counters_from_json(run.about.get("counters", {}))
    if done.steps >= run.plan.steps:
        raise ValueError(
            f"The run in {str(run.folder)!r} is complete: {done.steps:,} of "
            f"{run.plan.steps:,} steps. To extend it, state how many more steps to "
            f"take (`eqsim resume {run.folder} --steps 1e6`, or `more_steps`)."
        )
    return run


def _go(
    begin: float,
    run: Run,
    source: Any,
    eval_env: AbstractEnv | None,
    folder: pathlib.Path | None,
    callbacks: Sequence[AbstractCallback],
    progress: bool,
) -> Result:
    shown = Bar() if progress and is_first() else Silent()
    observers = with_defaults(callbacks, folder)
    try:
        with listening(shown) as interrupt:
            state, counters = (
                run.state,
                counters_from_json(run.about.get("counters", {})),
            )
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
                    _save_start(gathered(state), counters, observers, run)
                evaluator = Evaluator(run.members, state, eval_env, run.plan)
                told = evaluator, observers, shown
                loop = Loop(run, source, state, counters, *told, begin)
                # The loop gives memory of states away: keep no other name for them.
                run, state = dataclasses.replace(run, state=None), None
                loop.go(interrupt)
            finally:
                for observer in observers:
                    observer.close()
    finally:
        shown.close()
    found = tuple(loop.evaluations)
    result = Result(run.members, loop.state, loop.counters, found, folder)
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
    state: Any, counters: Counters, observers: Sequence[AbstractCallback], run: Run
) -> None:
    """Write a given initial state, which cannot be computed again."""
    savers = [x for x in observers if isinstance(x, Checkpoint)]
    why = "".join([saver.save(state, counters) for saver in savers])
    if agreed(int(bool(why)))[0]:
        raise UnsavedError(
            f"The initial state of the run in {str(run.folder)!r} could not be written "
            f"({why}). Free some disk space and start the run again, with "
            "`RunFolder(path, overwrite=True)`."
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
