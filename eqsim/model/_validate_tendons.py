"""Checks of sites and tendons."""

import numpy as np

from ._checks import check_solimp, reject
from ._kinds import GeomKind, WrapKind
from ._system import System


def check_sites(sys: System) -> None:
    """Raise `ValueError` if a site has an invalid orientation."""
    sites = sys.sites
    reject(
        sites.quat,
        lambda quat: ~np.any(quat, axis=-1),
        sites.names,
        "Sites.quat of {name!r} is zero, which is no orientation. Use (1, 0, 0, 0).",
    )


def check_tendons(sys: System) -> None:
    """Raise `ValueError` if a path or a parameter of a tendon is invalid or
    unsupported."""
    if not sys.ntendon:
        return
    _check_paths(sys)
    _check_flags(sys)
    _check_bounds(sys)
    tendons = sys.tendons
    who = "Tendon {name!r}"
    check_solimp(tendons.limit_solimp, tendons.names, who, "limit_solimp")
    check_solimp(tendons.friction_solimp, tendons.names, who, "friction_solimp")


def _check_paths(sys: System) -> None:
    sizes = {
        WrapKind.JOINT: ("joint", sys.njoint),
        WrapKind.SITE: ("site", sys.nsite),
        WrapKind.GEOM: ("geom", sys.ngeom),
    }
    pulleys: list[str] = []
    coefs = 0
    for name, path in zip(sys.tendons.names, sys.tendons.paths):
        for point in path:
            if point.kind is WrapKind.PULLEY:
                pulleys.append(name)
                continue
            word, size = sizes[point.kind]
            if not 0 <= point.target < size or not -1 <= point.side_site < sys.nsite:
                raise ValueError(
                    f"Tendon {name!r} names {word} {point.target} with side site "
                    f"{point.side_site}, but this system has {size} {word}s and "
                    f"{sys.nsite} sites."
                )
            if point.kind is WrapKind.JOINT:
                coefs += 1
                if sys.joints.kinds[point.target].nv > 1:
                    raise ValueError(
                        f"Tendon {name!r} names joint "
                        f"{sys.joints.names[point.target]!r}, which is neither hinge nor "
                        "slide. A fixed tendon couples hinges and slides only."
                    )
            if point.kind is WrapKind.GEOM:
                kind = sys.geoms.kinds[point.target]
                if kind not in (GeomKind.SPHERE, GeomKind.CYLINDER):
                    raise ValueError(
                        f"Tendon {name!r} wraps around shape "
                        f"{sys.geoms.names[point.target]!r}, a {kind.name.lower()}. Use a "
                        "sphere or a cylinder."
                    )
    counts = sys.tendons.coef.shape[-1], sys.tendons.divisor.shape[-1]
    if counts != (coefs, len(pulleys)):
        raise ValueError(
            f"Tendons have {counts[0]} coefficients and {counts[1]} divisors, but their "
            f"paths have {coefs} joints and {len(pulleys)} pulleys."
        )
    reject(
        sys.tendons.divisor,
        lambda divisor: divisor <= 0,
        tuple(pulleys),
        "Tendon {name!r} has a pulley with divisor {value}. It must be positive.",
    )


def _check_flags(sys: System) -> None:
    tendons = sys.tendons
    for flag, marks, fields in (
        ("has_spring", tendons.has_spring, ("stiffness", "stiffness_poly")),
        ("has_damping", tendons.has_damping, ("damping", "damping_poly")),
        ("has_friction", tendons.has_friction, ("frictionloss",)),
        ("has_armature", tendons.has_armature, ("armature",)),
    ):
        without = ~np.asarray(marks, bool)
        for field in fields:
            value = vars(tendons)[field]
            poly = field.endswith("poly")
            reject(
                value,
                lambda x: (np.any(x != 0, axis=-1) if poly else x != 0) & without,
                tendons.names,
                f"Tendon {{name!r}} has {field} {{value}}, but Tendons.{flag} is False "
                f"there, so it is not simulated. Set {flag} to True.",
            )
    for field in ("frictionloss", "armature"):
        reject(
            vars(tendons)[field],
            lambda x: x < 0,
            tendons.names,
            f"Tendon {{name!r}} has {field} {{value}}. It must not be negative.",
        )


def _check_bounds(sys: System) -> None:
    tendons = sys.tendons
    manual = tuple(not automatic for automatic in tendons.rests_at_reference)
    for field, marks, strict in (
        ("range", tendons.limited, True),
        ("spring_length", manual, False),
        ("actuator_force_range", tendons.actuator_force_limited, True),
    ):
        enforced = np.asarray(marks, bool)
        reject(
            vars(tendons)[field],
            lambda x: (
                (x[..., 0] >= x[..., 1] if strict else x[..., 0] > x[..., 1]) & enforced
            ),
            tendons.names,
            f"Tendon {{name!r}} has {field} {{value}}. The first number must be the "
            "smaller one.",
        )
