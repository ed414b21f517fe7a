"""Random robots, for tests of functions that take a `System`."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import is_key
from .._primitive import patterned
from ._random_actuators import (
    random_actuators,
    with_actuator_laws,
    with_joint_laws,
    with_transmissions as _with_transmissions,
)
from ._random_parts import (
    add_meshes,
    Plan,
    random_exceptions,
    random_geoms,
    random_joints,
    random_keyframes,
    random_links,
    random_plan,
    unit,
)
from ._random_sensors import add_sensors
from ._random_tendons import add_sites, add_tendons, random_equalities, TendonOptions
from ._system import System
from .kinds import Cone, Integrator, JointKind
from .parts import Equalities


def random_system(
    seed: Any,
    nlink: int = 6,
    joints: Sequence[JointKind] = tuple(JointKind),
    num_roots: int = 2,
    *,
    with_geoms: bool = True,
    with_actuators: bool = True,
    with_limits: bool = True,
    with_friction: bool = True,
    with_fluid: bool = False,
    with_laws: bool = False,
    with_equalities: bool = False,
    with_sites: bool = False,
    with_tendons: bool = False,
    with_tendon_armature: bool = True,
    with_transmissions: bool = False,
    with_meshes: bool = False,
    with_sensors: bool = False,
    most_sensors: int | None = None,
    integrator: Integrator = Integrator.EULER,
    cone: Cone = Cone.PYRAMIDAL,
    condims: Sequence[int] = (1, 3),
) -> System:
    """Draw a robot; every feature of a `System` occurs for some seed.

    Inertias are physical, and links ordered as in MuJoCo. Touching shapes have contacts.

    **Arguments:**

    - `seed`: an integer or a JAX key. The same seed gives the same robot.
    - `nlink`, `num_roots`: number of links, and number of links attached to the world.
    - `joints`: kinds of joints to draw from.
    - `with_geoms`, ..., `with_fluid`: true for shapes and a ground plane, actuators,
        joint limits, dry friction, and a fluid with wind.
    - `with_laws`: true for muscles, DC motors, PID servos and orientation servos,
        polynomial springs and dampers, and limits of actuator forces.
    - `with_equalities`: true for equality constraints of all kinds.
    - `with_sites`, `with_tendons`: true for sites, and for fixed and spatial tendons
        (which need sites), with limits and dry friction if joints may have them.
    - `with_tendon_armature`: true for tendons with armature.
    - `with_transmissions`: true to let most actuators act on other objects than joints.
    - `with_meshes`: true to replace boxes by meshes and height fields.
    - `with_sensors`: true for sensors of every possible kind (which need sites);
        `most_sensors`: largest number of sensors, None for all.
    - `integrator`, `cone`: integrator and friction cone of the system; `condims`:
        contact dimensions to draw from.

    **Raises:** `ValueError` if the counts are invalid.
    """
    _check_counts(nlink, num_roots, len(joints))
    rng = _generator(seed)
    plan = random_plan(rng, nlink, tuple(joints), num_roots)
    wanted = _Wanted(with_geoms, with_actuators, with_limits, with_friction, with_fluid)
    sys = _base(rng, plan, wanted, with_laws, integrator, cone, tuple(condims))
    tendons = TendonOptions(with_limits, with_friction, with_tendon_armature)
    sites = with_sites or with_sensors or with_transmissions
    sys = _extended(rng, sys, sites, tendons if with_tendons else None)
    sys = _changed(rng, sys, with_transmissions, with_equalities, with_meshes)
    return patterned(add_sensors(rng, sys, most_sensors) if with_sensors else sys)


class _Wanted(NamedTuple):
    geoms: bool
    actuators: bool
    limits: bool
    friction: bool
    fluid: bool


def _base(
    rng: np.random.Generator,
    plan: Plan,
    wanted: _Wanted,
    with_laws: bool,
    integrator: Integrator,
    cone: Cone,
    condims: tuple[int, ...],
) -> System:
    """Draw links, joints, shapes and actuators."""
    links = random_links(rng, plan)
    shaped = len(plan.parents) if wanted.geoms else None
    geoms = random_geoms(rng, shaped, condims, wanted.fluid)
    pairs, excludes = random_exceptions(rng, plan, geoms, condims)
    medium = rng.uniform([1, 0, -1, -1, -1], [100, 0.1, 1, 1, 1]) * wanted.fluid
    moving = random_joints(rng, plan, links, wanted.limits, wanted.friction)
    drives = random_actuators(rng, plan if wanted.actuators else Plan((), (), ()))
    if with_laws:
        own = rng.spawn(1)[0]
        moving = with_joint_laws(own, moving, bool(np.any(links.gravity_compensation)))
        drives = with_actuator_laws(own, drives, moving)
    return System(
        links=links,
        joints=moving,
        geoms=geoms,
        pairs=pairs,
        actuators=drives,
        equalities=Equalities.none(),
        excludes=excludes,
        integrator=integrator,
        cone=cone,
        has_fluid=wanted.fluid,
        **_options(rng, medium),
        # Last, so that earlier draws do not depend on it.
        keyframes=random_keyframes(rng, moving, drives),
    )


def _extended(
    rng: np.random.Generator,
    sys: System,
    with_sites: bool,
    options: TendonOptions | None,
) -> System:
    """Add sites and tendons, last, so that the rest does not depend on them."""
    if with_sites or options is not None:
        sys = add_sites(rng, sys)
    return sys if options is None else add_tendons(rng, sys, options)


def _changed(
    rng: np.random.Generator,
    sys: System,
    transmissions: bool,
    couples: bool,
    meshes: bool,
) -> System:
    """Add features that have a random generator of their own."""
    sys = _with_transmissions(rng, sys) if transmissions else sys
    sys = _coupled(rng, sys) if couples else sys
    return add_meshes(rng.spawn(1)[0], sys) if meshes else sys


def _coupled(rng: np.random.Generator, sys: System) -> System:
    """Add equality constraints."""
    sizes = sys.nsite, sys.ntendon
    drawn = random_equalities(rng.spawn(1)[0], sys.links, sys.joints, *sizes)
    return dataclasses.replace(sys, equalities=drawn)


def _options(rng: np.random.Generator, medium: np.ndarray) -> dict[str, Any]:
    return {
        "filter_parent": bool(rng.random() < 0.8),
        "implicit_damping": bool(rng.random() < 0.8),
        "safe_solref": True,
        "notes": (),
        "gravity": np.array([0, 0, -9.81]) + rng.normal(size=3),
        "wind": medium[2:],
        "density": float(medium[0]),
        "viscosity": float(medium[1]),
        "impratio": float(rng.choice([1.0, 2.0])),
        "dt": float(rng.uniform(0.002, 0.008)),
    }


def _check_counts(nlink: int, num_roots: int, num_kinds: int) -> None:
    if not 1 <= num_roots <= nlink or not num_kinds:
        raise ValueError(
            f"Cannot build {nlink} links with {num_roots} roots from {num_kinds} "
            "kinds of joints. Pass 1 <= num_roots <= nlink and at least one kind."
        )


def random_configuration(
    seed: Any, sys: System, scale: float = 1.0
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Draw coordinates (with unit quaternions) and velocities of a robot.

    **Arguments:**

    - `seed`: an integer or a JAX key.
    - `sys`: the robot, not a batch.
    - `scale`: scale of the deviation from the reference and of the velocities; 0 gives
        the reference at rest.

    **Returns:** `q` and `qd`.
    """
    rng = _generator(seed)
    q = np.array(sys.joints.ref, np.float64)
    for kind, start in zip(sys.joints.kinds, sys.joints.q_starts):
        if kind is JointKind.REVOLUTE:
            q[start] += scale * rng.normal()
        elif kind is JointKind.PRISMATIC:
            q[start] += 0.3 * scale * rng.normal()
        elif kind is JointKind.FREE:
            q[start : start + 3] += 0.3 * scale * rng.normal(size=3)
        if kind.nq > 1:
            quat = slice(start + kind.nq - 4, start + kind.nq)
            q[quat] = unit(q[quat] + scale * rng.normal(size=4))
    qd = scale * rng.normal(size=sys.nv)
    return _float(q), _float(qd)


def neutral(sys: System) -> Float[Array, " nq"]:
    """Return the coordinates at which links have the poses `Links.pos` and
    `Links.quat`.

    **Arguments:**

    - `sys`: the robot.
    """
    return sys.joints.ref


def _generator(seed: Any) -> np.random.Generator:
    if isinstance(seed, jax.Array):
        data = jax.random.key_data(seed) if is_key(seed) else seed
        return np.random.default_rng([int(word) for word in np.ravel(data)])
    return np.random.default_rng(int(seed))


def _float(value: np.ndarray) -> Array:
    return jnp.asarray(value, jnp.result_type(float))
