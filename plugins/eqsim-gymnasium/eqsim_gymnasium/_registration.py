"""Registration of eqsim's environments in Gymnasium."""

import warnings

import gymnasium

import eqsim


_DEFAULT_STEPS = 1000

_SPELLED = {"humanoidstandup": "HumanoidStandup"}
"""Names that are one word in eqsim and two words in Gymnasium."""


def register_envs() -> tuple[str, ...]:
    """Register every name in `eqsim.ENVS` that is not registered yet.

    Importing this package calls this function. Call it again after installing a package
    (and calling `eqsim.ENVS.refresh()`), or after `eqsim.ENVS.register`. Only strings
    are registered: nothing is imported or built.

    `half_cheetah` becomes `eqsim/HalfCheetah-v0`. Its time limit is that of
    `HalfCheetah-v5`; for names that Gymnasium does not have, it is 1000 steps.

    **Returns:** the new ids.

    **Warns:** if a name is not a valid id, or if two names give the same id, which then
    refers to the first in alphabetical order.
    """
    new, taken = [], {}
    for name in eqsim.ENVS.names():
        id = f"eqsim/{_camel(name)}-v0"
        first = taken.setdefault(id, name)
        if first != name:
            _warn(f"{name!r} would be {id!r}, as {first!r} is, and was left out.")
        elif id not in gymnasium.registry and _register(id, name):
            new.append(id)
    return tuple(new)


def _register(id: str, name: str) -> bool:
    try:
        gymnasium.register(
            id,
            "eqsim_gymnasium:EqsimEnv",
            max_episode_steps=_steps(name),
            kwargs={"env": name},
            vector_entry_point="eqsim_gymnasium:EqsimVectorEnv",
        )
    except gymnasium.error.Error as error:
        _warn(f"{name!r} is no name for Gymnasium, and was left out: {error}")
        return False
    return True


def _warn(text: str) -> None:
    warnings.warn(
        f"{text} Write `eqsim_gymnasium.EqsimEnv(...)` instead.", stacklevel=4
    )


def _camel(name: str) -> str:
    if name in _SPELLED:
        return _SPELLED[name]
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _steps(name: str) -> int:
    base = name.removesuffix("_uni").removesuffix("_omni")
    peer = gymnasium.registry.get(f"{_camel(base)}-v5")
    steps = None if peer is None else peer.max_episode_steps
    return _DEFAULT_STEPS if steps is None else steps
