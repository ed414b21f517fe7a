"""Checks of environments."""

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
    """Return the checks of an environment, ordered so that causes come before
    consequences.

    The checks share compiled programs. A check raises `NotApplicable` if a check that
    it needs does not pass, so that one error is reported once.

    **Arguments:**

    - `env`: the environment, or a wrapper around one.
    - `build`: function that builds an equal environment; by default, its class is
        called without arguments, if possible.

    **Raises:** `TypeError` if it is not an environment.
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
    """Check that an environment works with rollouts, wrappers, agents and derivatives.

    Takes seconds for a small environment, mostly for compilation. Derivatives are
    compared with finite differences in double precision, to which the environment is
    converted. If an environment computes in a fixed precision, `precision` fails and
    these checks are not applicable.

    **Arguments:**

    - `env`, `build`: arguments of `env_checks`.
    - `expected_failures`: reasons by name of check, in addition to those of the class
        attribute `__eqsim_expected_failures__`.

    **Returns:** the outcome of each check.

    **Raises:** `ConformanceError`, which lists every failure with advice, if a check
    fails or passes unexpectedly; `ValueError` if a name is unknown.
    """
    return run_checks(env, env_checks(env, build=build), expected_failures)
