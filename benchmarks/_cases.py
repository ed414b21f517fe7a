"""Random robots in which every feature occurs, alone and with others."""

from typing import Any, NamedTuple

import mujoco
import numpy as np
from _reference import converge
from _states import draw, rounded, States
from _variations import variation

import eqsim
from eqsim.io import write_mjcf
from eqsim.model import Cone, Integrator, JointKind
from eqsim.testing import random_system


LINKS = 4
GROUPS = (
    "contacts",
    "limits",
    "friction",
    "actuators",
    "laws",
    "transmissions",
    "tendons",
    "equalities",
    "medium",
    "sensors",
    "elliptic",
    "integrator",
)
"""Groups of features of random robots. Each group is also drawn alone; `actuators` is
drawn with `laws` and `transmissions`, and `contacts` with `elliptic`."""

_NEEDS = {"laws": ("actuators",), "transmissions": ("actuators",)}
_NEEDS |= {"elliptic": ("contacts",)}
_INTEGRATORS = (Integrator.RK4, Integrator.IMPLICIT, Integrator.IMPLICIT_FAST)
_CONDIMS = ((1, 3), (3,), (4,), (6,), (1, 3, 4, 6))


class Case(NamedTuple):
    """A random robot in eqsim and MuJoCo, with states.

    - `alone`: the group that was drawn alone, or None.
    """

    sys: eqsim.System
    model: mujoco.MjModel
    states: States
    alone: str | None


def random_case(
    seed: int, count: int, precision: str = "double", links: int = LINKS
) -> Case:
    """Draw a robot: every third seed with one of `GROUPS`, the others with several.

    **Arguments:**

    - `seed`: the same seed gives the same robot and states.
    - `count`: number of states.
    - `links`: largest number of links.
    """
    rng = np.random.default_rng([seed, 22])
    alone = GROUPS[(seed // 3) % len(GROUPS)] if seed % 3 == 0 else None
    share = rng.uniform(0.25, 0.65)
    chosen = {group for group in GROUPS if rng.random() < share}
    chosen = {alone} if alone else chosen
    chosen |= {need for group in chosen for need in _NEEDS.get(group, ())}
    return _case(_system(rng, seed, chosen, links), count, seed, precision, alone)


def random_cases(
    seed: int, count: int, precision: str, links: int, variations: int
) -> list[Case]:
    """Return the robot of `random_case`, and robots of its structure with other
    parameters and other states."""
    first = random_case(seed, count, precision, links)
    rng, cases = np.random.default_rng([seed, 23]), [first]
    for k in range(1, variations + 1):
        sys, start = variation(first.sys, rng), [seed, k]
        cases.append(_case(sys, count, start, precision, first.alone))
    return cases


def _case(sys: eqsim.System, count: int, seed, precision: str, alone: str | None):
    model = converge(mujoco.MjModel.from_xml_string(write_mjcf(sys)))
    return Case(sys, model, drawn_states(model, count, seed, precision), alone)


def drawn_states(
    model: mujoco.MjModel, count: int, seed: int | list[int], precision: str
) -> States:
    """Return the states of a comparison, exact in its precision."""
    states = draw(model, count, seed)
    return states if precision == "double" else rounded(states)


def _system(rng: np.random.Generator, seed: int, chosen: set[str], links: int):
    nlink = 1 + seed % links
    kinds: Any = tuple(JointKind)
    if rng.random() < 0.3:
        kinds = tuple(kinds[k] for k in rng.choice(4, 2, replace=False))
    integrator = _INTEGRATORS[rng.integers(3)]
    return random_system(
        seed,
        nlink,
        kinds,
        num_roots=int(rng.integers(1, min(2, nlink) + 1)),
        with_geoms="contacts" in chosen or "medium" in chosen,
        with_actuators="actuators" in chosen,
        with_limits="limits" in chosen,
        with_friction="friction" in chosen,
        with_fluid="medium" in chosen,
        with_laws="laws" in chosen,
        with_equalities="equalities" in chosen,
        with_sites="equalities" in chosen and bool(rng.random() < 0.5),
        with_tendons="tendons" in chosen,
        with_tendon_armature=bool(rng.random() < 0.4),
        with_transmissions="transmissions" in chosen,
        with_sensors="sensors" in chosen,
        most_sensors=10,
        integrator=integrator if "integrator" in chosen else Integrator.EULER,
        cone=Cone.ELLIPTIC if "elliptic" in chosen else Cone.PYRAMIDAL,
        condims=_CONDIMS[rng.integers(len(_CONDIMS))],
    )
