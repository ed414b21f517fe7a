"""Conformance checks as pytest tests."""

import collections
import dataclasses
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .._policies import AbstractAgent
from ..envs import AbstractEnv
from ..pipelines import AbstractPipeline
from ._agent import agent_checks
from ._check import Check, expected_of, NotApplicable
from ._env import env_checks
from ._pipeline import pipeline_checks


def checks_of(subject: Any) -> Iterator[Check]:
    """Return the checks of an environment, a pipeline or an agent.

    **Raises:** `TypeError` if it is none of them.
    """
    kinds = {
        AbstractEnv: env_checks,
        AbstractPipeline: pipeline_checks,
        AbstractAgent: agent_checks,
    }
    for kind, checks in kinds.items():
        if isinstance(subject, kind):
            return checks(subject)
    raise TypeError(
        "An environment, a pipeline or an agent is expected, but got "
        f"{subject!r}{'; call the class' if isinstance(subject, type) else ''}."
    )


def parametrize_with_checks(
    objects: Sequence[Any],
    expected_failures: Mapping[str, str] | Callable[[Any], Mapping[str, str]] = {},
) -> Callable:
    """Decorate a test with an argument `check`, to run once per check and object.

    Test names end with `Ant-jit`. Expected failures become strict `xfail`s, and checks
    that are not applicable are skipped with a reason. Needs the extra `testing`.

    **Arguments:**

    - `objects`: environments, pipelines, agents.
    - `expected_failures`: reasons by name of check, or a function that returns them for
        an object; in addition to those of the class attribute
        `__eqsim_expected_failures__`.

    **Raises:** `TypeError` if an object is of a kind without checks; `ValueError` if
    the name of a check is unknown; `ImportError` without pytest.

    !!! example

        ```python
        @parametrize_with_checks([eqsim.make("point_mass"), eqsim.make("ant")])
        def test_conformance(check):
            check.run()
        ```
    """
    pytest = _pytest()
    names = collections.Counter(type(x).__name__ for x in objects)
    seen: collections.Counter = collections.Counter()
    parameters = []
    for subject in objects:
        name = type(subject).__name__
        seen[name] += 1
        label = name if names[name] == 1 else f"{name}{seen[name]}"
        given = expected_failures
        given = given(subject) if callable(given) else given
        checks = tuple(checks_of(subject))
        expected = expected_of(subject, checks, given)
        for check in checks:
            parameters.append(
                pytest.param(
                    skipping(check),
                    id=f"{label}-{check.name}",
                    marks=xfail_marks(check, expected),
                )
            )
    return pytest.mark.parametrize("check", parameters)


def _pytest() -> Any:
    """Import pytest.

    **Raises:** `ImportError` that names the extra.
    """
    try:
        return importlib.import_module("pytest")
    except ImportError as error:
        raise ImportError(
            "Checks of `eqsim.testing` become tests of pytest, which cannot be imported "
            f"({error}). Run `pip install 'eqsim[testing]'`."
        ) from error


def xfail_marks(check: Check, expected: Mapping[str, str]) -> tuple:
    """Return the pytest marks of a check: `xfail` if it is expected to fail."""
    pytest = _pytest()
    if check.name not in expected:
        return ()
    return (pytest.mark.xfail(reason=expected[check.name], strict=True),)


def skipping(check: Check) -> Check:
    """Return a check that skips the test if it is not applicable."""
    pytest = _pytest()

    def run() -> None:
        try:
            check.run()
        except NotApplicable as reason:
            pytest.skip(reason.reason)

    return dataclasses.replace(check, function=run)
