"""The conformance kit: checks that an environment, a pipeline or an agent is what the rest
of eqsim expects, and that a collider, a constraint or an actuator model is what the physics
expects.

The laws of each kind of object are in `_environment_laws`, `_pipeline_laws`, `_agent_laws`
and `component_laws`. Here they become checks, which run in three ways with
the same results: by functions such as `check_conformance` and `check_collider`, as tests of
pytest by `parametrize_with_checks`, and by `eqsim plugins check NAME`.
"""

import collections
import contextlib
import dataclasses
import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from jaxtyping import Array, Float

from .._errors import check_type
from .._policies import AbstractAgent
from ..collision import contact_plan
from ..constraint import AbstractConstraint
from ..envs import AbstractEnv
from ..model import AbstractActuatorModel, State, System
from ..pipelines import AbstractPipeline
from . import _agent_laws, _environment_laws, _pipeline_laws
from .comparisons import double_precision, NotApplicable
from .component_laws import (
    ACTUATOR_MODEL_LAWS,
    ActuatorModelKit,
    COLLIDER_LAWS,
    ColliderKit,
    CONSTRAINT_LAWS,
    ConstraintKit,
)


class ConformanceError(AssertionError):
    """An object does not conform to its interface; the message lists all failures.

    **Arguments:**

    - `subject`: name of the object.
    - `failures`: description of each failure by name of check.
    """

    def __init__(self, subject: str, failures: dict[str, str]):
        self.subject, self.failures = subject, failures

    def __str__(self) -> str:
        lines = [f"{self.subject}: {len(self.failures)} failed"]
        for name, text in self.failures.items():
            lines += ["", f"{name}: " + text.replace("\n", "\n  ")]
        return "\n".join(lines)


def check_conformance(
    subject: AbstractEnv | AbstractPipeline | AbstractAgent,
    expected_failures: Mapping[str, str] = {},
    *,
    build: Callable[[], Any] | None = None,
    iterations: int = 200,
) -> dict[str, str]:
    """Check that an environment, a pipeline or an agent conforms to its interface, works
    with the other parts of eqsim, and is differentiable (or learns).

    Takes seconds for a small environment, mostly for compilation. The checks share compiled
    programs. A check is not applicable if another one that it needs does not pass, so that
    one error is reported once.

    - An environment is tested with rollouts, and its derivatives are compared with finite
      differences in double precision, to which it is converted.
    - A pipeline is tested with three small robots in double precision.
    - An agent acts and learns on `eqsim.testing.probes`. Without `iterate`, checks of
      learning are not applicable. An agent that needs wrappers around a probe declares a
      static method `__eqsim_wrap__(env)` in its class, which applies them.

    **Arguments:**

    - `subject`: the object.
    - `expected_failures`: reasons by name of check, in addition to those of the class
        attribute `__eqsim_expected_failures__`.
    - `build`: function that builds an equal object; by default, its class is called
        without arguments, if possible.
    - `iterations`: number of calls of `iterate` in which an agent must learn a probe.

    **Returns:** the outcome of each check by name: `passed`, or `expected failure` or `not
    applicable` with the reason.

    **Raises:** `ConformanceError`, which lists every failure with advice, if a check fails
    or passes unexpectedly; `TypeError` if the object is of another kind; `ValueError` if
    there is no check with the name of an expected failure.
    """
    checks = checks_of(subject, build=build, iterations=iterations)
    return _run_all(
        type(subject).__name__, outcomes(subject, checks, expected_failures)
    )


def check_collider(sys: System, q: Float[Array, " nq"]) -> dict[str, str]:
    """Check the contact points of a pair of shapes, and their derivatives, in double
    precision.

    Check several configurations: shapes that are apart but within their margin, touching
    shapes, and deep penetration.

    **Arguments:**

    - `sys`: a robot with one pair of shapes that can touch.
    - `q`: coordinates in which they touch.

    **Returns:** as `check_conformance`.

    **Raises:** `ConformanceError`, which lists every failure with advice; `ValueError` if
    the robot does not have exactly one pair.
    """
    pairs = contact_plan(sys).pairs
    if len(pairs) != 1:
        raise ValueError(
            f"The robot has {len(pairs)} pairs of shapes that can touch: give one with a "
            "single pair."
        )
    names = " and ".join(sys.geoms.kinds[geom].name for geom in pairs[0][:2])
    checks = _bind(ColliderKit(sys, q), COLLIDER_LAWS, double_precision)
    return _run_all(f"The collider of {names}", outcomes(sys, checks))


def check_constraint(
    constraint: AbstractConstraint, sys: System, state: State
) -> dict[str, str]:
    """Check that a constraint fulfills the assumptions of the solver, and is
    differentiable, in double precision, with this constraint as the only one.

    **Arguments:**

    - `constraint`: constraint to check.
    - `sys`, `state`: robot with this constraint, in a state in which it is active.

    **Returns:** as `check_conformance`.

    **Raises:** `ConformanceError`, which lists every failure with advice.
    """
    check_type("constraint", constraint, AbstractConstraint, "a constraint")
    kit = ConstraintKit(constraint, sys, state)
    checks = _bind(kit, CONSTRAINT_LAWS, double_precision)
    return _run_all(type(constraint).__name__, outcomes(constraint, checks))


def check_actuator_model(
    model: AbstractActuatorModel, sys: System, names: Sequence[str]
) -> dict[str, str]:
    """Check an actuator model on a robot, in double precision: shapes, finite values and
    derivatives, batches, and that CPU kernels include it.

    **Arguments:**

    - `model`: model to check, of one actuator.
    - `sys`, `names`: robot and actuators that get the model.

    **Returns:** as `check_conformance`.

    **Raises:** `ConformanceError`, which lists every failure with advice.
    """
    check_type("model", model, AbstractActuatorModel, "an actuator model")
    kit = ActuatorModelKit(model, sys, names)
    checks = _bind(kit, ACTUATOR_MODEL_LAWS, double_precision)
    return _run_all(type(model).__name__, outcomes(model, checks))


def parametrize_with_checks(
    objects: Sequence[Any], expected_failures: Mapping[str, str] = {}
) -> Callable:
    """Decorate a test with an argument `check`, to run once per check and object.

    Test names end with `Ant-jit`. Expected failures become strict `xfail`s, and checks
    that are not applicable are skipped with a reason. Needs the extra `testing`.

    **Arguments:**

    - `objects`: environments, pipelines, agents.
    - `expected_failures`: reasons by name of check, in addition to those of the class
        attribute `__eqsim_expected_failures__`.

    **Raises:** `TypeError` if an object is of a kind without checks; `ValueError` if
    the name of a check is unknown; `ImportError` without pytest.

    !!! example

        ```python
        @parametrize_with_checks([eqsim.make("point_mass"), eqsim.make("ant")])
        def test_conformance(check):
            check.run()
        ```
    """
    try:
        pytest: Any = importlib.import_module("pytest")
    except ImportError as error:
        raise ImportError(
            "Checks of `eqsim.testing` become tests of pytest, which cannot be imported "
            f"({error}). Run `pip install 'eqsim[testing]'`."
        ) from error

    def skipping(run: Callable[[], None]) -> None:
        try:
            run()
        except NotApplicable as reason:
            pytest.skip(reason.reason)

    names = collections.Counter(type(x).__name__ for x in objects)
    seen: collections.Counter = collections.Counter()
    parameters = []
    for subject in objects:
        name = type(subject).__name__
        seen[name] += 1
        label = name if names[name] == 1 else f"{name}{seen[name]}"
        checks = checks_of(subject)
        expected = _expected(subject, checks, expected_failures)
        for check in checks:
            run = lambda run=check.run: skipping(run)
            marks = ()
            if check.name in expected:
                marks = pytest.mark.xfail(reason=expected[check.name], strict=True)
            parameters.append(
                pytest.param(
                    dataclasses.replace(check, run=run),
                    id=f"{label}-{check.name}",
                    marks=marks,
                )
            )
    return pytest.mark.parametrize("check", parameters)


@dataclasses.dataclass(frozen=True)
class Check:
    """One check of one object.

    **Arguments:**

    - `name`: name of the check, as used in expected failures.
    - `law`: requirement, in a sentence.
    - `advice`: advice for the case that it fails.
    - `run`: function that raises `NotApplicable` if the check is not applicable, and
        `AssertionError`, or any exception of the object, if the requirement is not met.
    """

    name: str
    law: str
    advice: str
    run: Callable[[], None] = dataclasses.field(repr=False)


def checks_of(
    subject: Any,
    *,
    build: Callable[[], Any] | None = None,
    iterations: int = 200,
) -> tuple[Check, ...]:
    """Return the checks of an environment, a pipeline or an agent, ordered so that causes
    come before consequences.

    **Arguments:** as for `check_conformance`.

    **Raises:** `TypeError` if it is none of them; `ValueError` if `iterations` is not
    positive.
    """
    if isinstance(subject, AbstractEnv):
        kit = _environment_laws.EnvKit(subject, build)
        return _bind(kit, _environment_laws.LAWS)
    if isinstance(subject, AbstractPipeline):
        kit = _pipeline_laws.PipelineKit(subject, build)
        return _bind(kit, _pipeline_laws.LAWS, double_precision)
    if iterations < 1:
        raise ValueError(f"`iterations` must be at least 1, got {iterations}.")
    expected = "an environment, a pipeline or an agent"
    check_type("subject", subject, AbstractAgent, expected)
    return _bind(_agent_laws.AgentKit(subject, iterations, build), _agent_laws.LAWS)


def _bind(
    kit: Any,
    laws: Mapping[Callable[[Any], None], tuple[str, ...]],
    context: Callable[[], Any] = contextlib.nullcontext,
) -> tuple[Check, ...]:
    """Return the checks of one object. Each is computed once, however often it runs.

    **Arguments:**

    - `kit`: argument of the laws.
    - `laws`: functions that raise if their requirement is not met, with the names of the
        laws that must hold for it to be meaningful. Each comes after those that it needs.
    - `context`: context in which laws are computed.
    """
    known = {law.__name__: (law, needs) for law, needs in laws.items()}
    errors: dict[str, Exception | None] = {}

    def error(name: str) -> Exception | None:
        if name not in errors:
            errors[name] = _error(*known[name])
        return errors[name]

    def _error(law: Callable, needs: tuple[str, ...]) -> Exception | None:
        for name in needs:
            found = error(name)
            # A law that is not applicable does not block others.
            fine = isinstance(found, NotApplicable) and not found.blocked
            if not (found is None or fine):
                reason = f"it needs `{name}`, which does not pass"
                return NotApplicable(reason, blocked=True)
        try:
            with context():
                law(kit)
        except Exception as caught:
            return caught
        return None

    def run(name: str) -> None:
        found = error(name)
        if found is not None:
            raise found

    checks = []
    for name, (law, _) in known.items():
        text = inspect.getdoc(law) or ""
        says, _, advice = (" ".join(part.split()) for part in text.partition("\n\n"))
        checks.append(Check(name, says, advice, lambda name=name: run(name)))
    return tuple(checks)


class Outcome(NamedTuple):
    """Outcome of a check, with its reason unless it passed."""

    check: Check
    status: Literal["passed", "failed", "expected failure", "not applicable"]
    reason: str = ""


def outcomes(
    subject: Any, checks: Iterable[Check], expected_failures: Mapping[str, str] = {}
) -> Iterator[Outcome]:
    """Run the checks of an object, and yield their outcomes.

    **Raises:** `ValueError` if a check that is expected to fail does not exist.
    """
    checks = tuple(checks)
    expected = _expected(subject, checks, expected_failures)
    for check in checks:
        yield _outcome(check, expected.get(check.name))


def _outcome(check: Check, expected: str | None) -> Outcome:
    advice = f"\n-> {check.advice}"
    try:
        check.run()
    except NotApplicable as reason:
        return Outcome(check, "not applicable", reason.reason)
    except Exception as error:
        if expected is not None:
            return Outcome(check, "expected failure", expected)
        kind = "" if type(error) is AssertionError else f"{type(error).__name__}: "
        return Outcome(check, "failed", f"{check.law}\n{kind}{error}{advice}")
    if expected is None:
        return Outcome(check, "passed")
    text = f"{check.law}\nit passed, but is expected to fail ({expected}): take it off the list"
    return Outcome(check, "failed", text)


def _expected(
    subject: Any, checks: Iterable[Check], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the reasons of expected failures by name of check: those declared in
    `__eqsim_expected_failures__` of the class, and given ones.

    **Raises:** `ValueError` if there is no check of this name, or it has no reason.
    """
    name = "__eqsim_expected_failures__"
    declared = inspect.getattr_static(type(subject), name, {})
    names = [check.name for check in checks]
    for where, failures in (
        (f"{type(subject).__name__}.{name}", declared),
        ("expected_failures", given),
    ):
        for key, reason in failures.items():
            if key not in names:
                close = difflib.get_close_matches(str(key), names, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise ValueError(
                    f"`{where}` names {key!r}, which is not a check of this kind of "
                    f"object.{hint} Checks: {', '.join(names)}."
                )
            if not (isinstance(reason, str) and reason):
                raise ValueError(
                    f"`{where}[{key!r}]` must be a reason, in words, got {reason!r}."
                )
    return {**declared, **given}


def _run_all(subject: str, found: Iterable[Outcome]) -> dict[str, str]:
    """Return the outcomes by name of check, or raise `ConformanceError`."""
    found = tuple(found)
    failures = {x.check.name: x.reason for x in found if x.status == "failed"}
    if failures:
        raise ConformanceError(subject, failures)
    text = lambda x: f"{x.status}: {x.reason}" if x.reason else x.status
    return {x.check.name: text(x) for x in found}
