"""Checks of pipelines."""

from collections.abc import Callable, Iterator, Mapping

from ..pipelines import AbstractPipeline
from . import _pipeline_physics as physics, _pipeline_programs as programs
from ._check import bind, Check, Law, Report, run_checks
from ._pipeline_kit import double, PipelineKit


_ALIKE = "jit", "structure"
_LOOP = *_ALIKE, "scan"
_SMOOTH = *_LOOP, "grad"
LAWS = (
    Law(double(programs.jit)),
    Law(double(programs.structure), ("jit",)),
    Law(double(programs.scan), _ALIKE),
    Law(double(programs.vmap), _LOOP),
    Law(double(programs.retrace), _ALIKE),
    Law(programs.precision, _ALIKE),
    Law(double(programs.serialization), ("jit",)),
    Law(programs.rebuild),
    Law(double(programs.refusals), ("jit",)),
    Law(double(programs.aux), _LOOP),
    Law(double(physics.free_fall), _ALIKE),
    Law(double(physics.linear_momentum), _ALIKE),
    Law(double(physics.angular_momentum), _ALIKE),
    Law(double(physics.energy), _ALIKE),
    Law(double(physics.coordinates), _ALIKE),
    Law(double(physics.contact), _LOOP),
    Law(double(physics.forces), (*_LOOP, "contact")),
    Law(double(physics.advance), _LOOP),
    Law(double(programs.grad), _LOOP),
    Law(double(programs.gradients_q), _SMOOTH),
    Law(double(programs.gradients_qd), _SMOOTH),
    Law(double(programs.gradients_ctrl), _SMOOTH),
    Law(double(programs.gradients_sys), _SMOOTH),
    Law(double(programs.sensitivity), (*_SMOOTH, "contact", "gradients_sys")),
)


def pipeline_checks(
    pipeline: AbstractPipeline, *, build: Callable[[], AbstractPipeline] | None = None
) -> Iterator[Check]:
    """Return the checks of a pipeline, ordered so that causes come before consequences.

    The checks use three small robots: a floating box, a double pendulum, and a ball on
    the ground with an actuated rod. If the pipeline rejects a robot with `ValueError`,
    its checks are not applicable. See `env_checks`.

    **Arguments:**

    - `pipeline`: the physics.
    - `build`: function that builds an equal pipeline; by default, its class is called
        without arguments, if possible.

    **Raises:** `TypeError` if it is not a pipeline.
    """
    if not isinstance(pipeline, AbstractPipeline):
        raise TypeError(f"An `AbstractPipeline` is expected, but got {pipeline!r}.")
    return bind(PipelineKit(pipeline, build), LAWS)


def check_pipeline(
    pipeline: AbstractPipeline,
    expected_failures: Mapping[str, str] = {},
    *,
    build: Callable[[], AbstractPipeline] | None = None,
) -> Report:
    """Check that a pipeline obeys the laws of physics and is differentiable.

    All checks use double precision, to which the parameters of the pipeline are
    converted.

    **Arguments:**

    - `pipeline`, `build`: arguments of `pipeline_checks`.
    - `expected_failures`: reasons by name of check, in addition to those of the class
        attribute `__eqsim_expected_failures__`.

    **Returns:** the outcome of each check.

    **Raises:** `ConformanceError`, which lists every failure with advice, if a check
    fails or passes unexpectedly; `ValueError` if a name is unknown.
    """
    checks = pipeline_checks(pipeline, build=build)
    return run_checks(pipeline, checks, expected_failures)
