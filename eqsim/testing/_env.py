"""What holds for every environment."""

from collections.abc import Callable, Iterator, Mapping

from ..envs import AbstractEnv
from . import _env_programs as programs, _env_reports as reports
from ._check import bind, Check, Law, Report, run_checks
from ._env_kit import EnvKit


_ALIKE = "jit", "structure", "deterministic"
_DOUBLE = *_ALIKE, "precision"
_SMOOTH = *_DOUBLE, "grad"
LAWS = (
    Law(programs.jit),
    Law(programs.structure, ("jit",)),
    Law(programs.deterministic, ("jit", "structure")),
    Law(programs.keys, _ALIKE),
    Law(programs.vmap, _ALIKE),
    Law(programs.scan, _ALIKE),
    Law(programs.retrace, _ALIKE),
    Law(programs.precision, ("jit", "structure")),
    Law(programs.serialization, ("jit",)),
    Law(programs.rebuild),
    Law(programs.mass, _ALIKE),
    Law(programs.fleet, (*_ALIKE, "vmap")),
    Law(reports.reports, ("jit",)),
    Law(reports.action_range),
    Law(reports.dt),
    Law(reports.first, ("jit", "reports")),
    Law(reports.reward, ("jit", "reports")),
    Law(reports.truncated, ("scan", "reports")),
    Law(reports.physics, ("jit",)),
    Law(reports.options, ("physics",)),
    Law(reports.wrong_action, ("jit",)),
    Law(reports.nan_action, ("jit",)),
    Law(reports.grad, _DOUBLE),
    Law(reports.gradients_action, _SMOOTH),
    Law(reports.gradients_state, _SMOOTH),
    Law(reports.gradients_env, _SMOOTH),
)


def env_checks(
    env: AbstractEnv, *, build: Callable[[], AbstractEnv] | None = None
) -> Iterator[Check]:
    """The checks of an environment, in an order in which causes come before what follows.

    They share what they compile. A check that needs another one which does not pass
    raises `NotApplicable`, so that one cause is one failure.

    **Arguments:**

    - `env`: the environment, or a wrapper around one.
    - `build`: makes the same environment once more; by default its class is called
        without arguments, if that is possible.

    **Raises:** `TypeError` if it is no environment.
    """
    if not isinstance(env, AbstractEnv):
        raise TypeError(f"An `AbstractEnv` is expected, but got {env!r}.")
    return bind(EnvKit(env, build), LAWS)


def check_env(
    env: AbstractEnv,
    expected_failures: Mapping[str, str] = {},
    *,
    build: Callable[[], AbstractEnv] | None = None,
) -> Report:
    """Checks that an environment does what rollouts, wrappers, agents and derivatives
    rely on.

    Takes seconds for a small environment, most of it compilation. Derivatives are
    compared with differences in double precision, into which the environment is
    converted; one that computes in a fixed precision fails `precision`, and these checks
    are not applicable.

    **Arguments:**

    - `env`, `build`: as of `env_checks`.
    - `expected_failures`: reasons by name of check, besides what the class of `env`
        declares in `__eqsim_expected_failures__`.

    **Returns:** what became of each check.

    **Raises:** `ConformanceError`, which lists every failure and what to do, if a check
    fails, or passes though it is expected to fail; `ValueError` if a name is unknown.
    """
    return run_checks(env, env_checks(env, build=build), expected_failures)
