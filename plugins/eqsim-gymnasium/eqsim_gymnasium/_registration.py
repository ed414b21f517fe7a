"""Names of eqsim as identifiers of Gymnasium."""

import warnings

import gymnasium

import eqsim


_DEFAULT_STEPS = 1000

_SPELLED = {"humanoidstandup": "HumanoidStandup"}
"""Names in which Gymnasium sees two words where eqsim sees one."""


def register_envs() -> tuple[str, ...]:
    """Registers every name in `eqsim.ENVS` that is not registered yet.

    Importing this package does so. Call it again after a package was installed (and
    `eqsim.ENVS.refresh()` called), or after `eqsim.ENVS.register`. Only strings are
    registered: nothing is imported or built.

    `half_cheetah` becomes `eqsim/HalfCheetah-v0`. Its episodes are as long as those of
    `HalfCheetah-v5`; those of a name that Gymnasium does not have, 1000 steps.

    **Returns:** the new identifiers.

    **Warns:** if a name can not be written as an identifier, or two names would be
    written in the same way; the first by alphabet has it.
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
