"""Skills as text: a prior with its size, and options of `Skills`."""

from typing import Any

from eqsim import AbstractEnv
from eqsim.wrappers import (
    AbstractSkillPrior,
    NormalSkills,
    OneHotSkills,
    Skills,
    UniformSkills,
)

from ._settings import unknown


_PRIORS = {"one_hot": OneHotSkills, "uniform": UniformSkills, "normal": NormalSkills}


def with_skills(env: AbstractEnv, text: str) -> Skills:
    """Wrap an environment in `Skills` given as text, such as `one_hot:5` or
    `uniform:2,resample_probability=0.02,least_steps=10`.

    **Raises:** `ValueError` if a prior, an option or a value is invalid.
    """
    prior, *rest = text.split(",")
    options: dict[str, Any] = {}
    for word in rest:
        name, _, value = (part.strip() for part in word.partition("="))
        name = name.replace("-", "_")
        if name not in _OPTIONS:
            raise ValueError(
                unknown(f"{text!r}: `Skills` has no option", name, _OPTIONS)
            )
        if name in options:
            raise ValueError(f"{text!r}: `{name}` is given twice. Remove one of them.")
        read, expected = _OPTIONS[name]
        try:
            options[name] = read(value)
        except ValueError as error:
            raise ValueError(
                f"{text!r}: `{name}` is {value!r}; expected {expected}."
            ) from error
    return Skills(env, prior_of(prior), **options)


def prior_of(text: str) -> AbstractSkillPrior:
    """Return a prior of skills given as text, such as `one_hot:5`.

    **Raises:** `ValueError` if the name or the size is invalid.
    """
    name, _, number = text.strip().replace("-", "_").partition(":")
    if name not in _PRIORS:
        raise ValueError(unknown("No prior of skills", name, _PRIORS))
    if not number.isdecimal():
        raise ValueError(f"{text!r}: expected a size after the name, as in `{name}:5`.")
    return _PRIORS[name](int(number))


def _probability(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise ValueError(text)
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value < 2**31:
        raise ValueError(text)
    return value


_OPTIONS = {
    "resample_probability": (_probability, "a number from 0 to 1, such as 0.02"),
    "least_steps": (_count, "an integer from 1, such as 10"),
}
