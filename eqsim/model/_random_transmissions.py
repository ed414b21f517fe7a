"""Actuators of a random robot on tendons, sites, slider-cranks and links."""

import dataclasses
from typing import Any

import numpy as np

from ._actuators import velocity_gains
from ._kinds import Activation, Bias, Gain, Transmission
from ._system import System


_SERVOS = (Activation.NONE, Activation.INTEGRATOR)
_REFERENCED = "referenced site"
_SITE, _TENDON = Transmission.SITE, Transmission.TENDON
_CRANK, _BODY = Transmission.SLIDER_CRANK, Transmission.BODY


def with_transmissions(rng: np.random.Generator, sys: System) -> System:
    """Move most actuators from their joints to tendons, sites, slider-cranks and links,
    for a robot with sites."""
    rng = rng.spawn(1)[0]
    actuators, count = sys.actuators, sys.nactuator
    kinds, targets = list(actuators.transmissions), list(actuators.targets)
    wraps, gear = list(actuators.wraps), np.array(actuators.gear)
    gain, bias = np.array(actuators.gain), np.array(actuators.bias)
    lengths, passive = np.zeros(count), np.ones((count, 2))
    for k, start in enumerate(actuators.out_starts):
        if kinds[k] is Transmission.ORIENTATION:
            if sys.nsite > 1 and rng.random() < 0.6:
                targets[k] = _two(rng, sys.nsite)
            continue
        options = _options(sys, k)
        if not options or rng.random() < 0.15:
            continue
        choice = options[rng.integers(len(options))]
        row = _row(rng, sys, choice)
        kinds[k], targets[k], gear[start] = row["kind"], row["target"], row["gear"]
        lengths[k] = row["length"]
        wraps[k] = choice == _REFERENCED and _turns(gear[start]) and _servo(sys, k)
        # MuJoCo supports neither armature of tendons around shapes nor damping of
        # sites.
        passive[k] = choice is _TENDON, 0.0
        if choice is _BODY:
            # Adhesion pulls, independently of the length of the transmission.
            gain[k, 1:], bias[k] = 0.0, 0.0
    affine = actuators.gains, actuators.biases
    damping = _scaled(actuators.damping, passive[:, 0])
    poly = _scaled(actuators.damping_poly, passive[:, :1])
    damps = np.zeros(count, bool) if damping is None else damping != 0
    damps = damps if poly is None else damps | np.any(poly != 0, axis=1)
    damped = {targets[k][0] for k in np.flatnonzero(damps) if kinds[k] is _TENDON}
    marks = enumerate(sys.tendons.has_damping)
    return dataclasses.replace(
        sys,
        tendons=dataclasses.replace(
            sys.tendons, has_damping=tuple(on or k in damped for k, on in marks)
        ),
        actuators=dataclasses.replace(
            actuators,
            transmissions=tuple(kinds),
            targets=tuple(targets),
            wraps=tuple(wraps),
            gear=gear,
            gain=gain,
            bias=bias,
            has_velocity_gain=velocity_gains(*affine, gain, bias),
            damping=damping,
            damping_poly=poly,
            armature=_scaled(actuators.armature, passive[:, 1]),
            crank_length=lengths if _CRANK in kinds else None,
        ),
    )


def _options(sys: System, k: int) -> list[Any]:
    """Return the objects that an actuator can act on. Muscles whose peak force depends
    on the inertia stay at their joints, because another transmission may move nothing
    at the reference."""
    actuators = sys.actuators
    muscles = actuators.muscles
    if muscles is not None and k in muscles.owners:
        if muscles.scaled[muscles.owners.index(k)]:
            return []
    laws = actuators.gains[k], actuators.biases[k]
    options: list[Any] = [_TENDON] if sys.ntendon else []
    options += [_SITE] if sys.nsite else []
    options += [_REFERENCED, _CRANK] if sys.nsite > 1 else []
    options += [_BODY] if laws == (Gain.AFFINE, Bias.AFFINE) and sys.ngeom else []
    return options


def _row(rng: np.random.Generator, sys: System, choice: Any) -> dict[str, Any]:
    gear, length = np.zeros(6), 0.0
    gear[0] = rng.uniform(0.5, 3) * rng.choice([-1, 1])
    kind = _SITE if choice == _REFERENCED else choice
    target = -1, -1
    if kind is _TENDON:
        target = int(rng.integers(sys.ntendon)), -1
    elif kind is _BODY:
        target, gear[0] = (int(rng.integers(-1, sys.nlink)), -1), 1.0
    elif kind is _CRANK:
        target, length = _two(rng, sys.nsite), float(rng.uniform(0.3, 1.0))
    elif choice is _SITE:
        target, gear = (int(rng.integers(sys.nsite)), -1), rng.uniform(-2, 2, 6)
    else:
        target = _two(rng, sys.nsite)
        gear = rng.uniform(-2, 2, 6) * np.repeat(_ONE_OR_BOTH[rng.integers(3)], 3)
    return {"kind": kind, "target": target, "gear": gear, "length": length}


_ONE_OR_BOTH = ((1, 0), (0, 1), (1, 1))
"""Flags of a site actuator: force or torque relative to its reference."""


def _servo(sys: System, k: int) -> bool:
    """Test if MuJoCo treats the law as that of a position servo."""
    actuators = sys.actuators
    if actuators.gains[k] is Gain.PID:
        return True
    laws = actuators.gains[k], actuators.biases[k]
    gain, bias = np.asarray(actuators.gain[k]), np.asarray(actuators.bias[k])
    return bool(
        laws == (Gain.AFFINE, Bias.AFFINE)
        and actuators.activation[k] in _SERVOS
        and np.any(bias)
        and gain[0] == -bias[1]
        and not np.any(gain[1:])
    )


def _turns(gear: np.ndarray) -> bool:
    return bool(not np.any(gear[:3]) and np.any(gear[3:]))


def _two(rng: np.random.Generator, count: int) -> tuple[int, int]:
    one, two = rng.choice(count, 2, replace=False).tolist()
    return one, two


def _scaled(values: Any, scale: np.ndarray) -> np.ndarray | None:
    if values is None:
        return None
    scaled = np.asarray(values) * scale
    return scaled if np.any(scaled) else None
