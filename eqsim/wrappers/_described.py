"""Environments for skill discovery and quality diversity."""

from typing import Any

from ..envs import Ant, HalfCheetah, Hopper, Humanoid, Walker2d
from ._descriptors import FeetContact, TorsoPosition


def ant_uni(**options: Any) -> FeetContact:
    """Create `Ant` with the descriptor `FeetContact` of size 4.

    **Arguments:** the options of `Ant`.
    """
    return FeetContact(Ant(**options), ("link3", "link6", "link9", "link12"))


def half_cheetah_uni(**options: Any) -> FeetContact:
    """Create `HalfCheetah` with the descriptor `FeetContact` of size 2.

    **Arguments:** the options of `HalfCheetah`.
    """
    return FeetContact(HalfCheetah(**options), ("bfoot", "ffoot"))


def hopper_uni(**options: Any) -> FeetContact:
    """Create `Hopper` with the descriptor `FeetContact` of size 1.

    **Arguments:** the options of `Hopper`.
    """
    return FeetContact(Hopper(**options), ("foot",))


def walker2d_uni(**options: Any) -> FeetContact:
    """Create `Walker2d` with the descriptor `FeetContact` of size 2.

    **Arguments:** the options of `Walker2d`.
    """
    return FeetContact(Walker2d(**options), ("foot", "foot_left"))


def humanoid_uni(**options: Any) -> FeetContact:
    """Create `Humanoid` with the descriptor `FeetContact` of size 2.

    **Arguments:** the options of `Humanoid`.
    """
    return FeetContact(Humanoid(**options), ("right_foot", "left_foot"))


def ant_omni(*, limit: float = 30.0, **options: Any) -> TorsoPosition:
    """Create `Ant` with the descriptor `TorsoPosition` and without the reward for
    running.

    **Arguments:** the options of `Ant`, and

    - `limit`: limit of the position, m.
    """
    options = {"forward_reward_weight": 0.0} | options
    return TorsoPosition(Ant(**options), limit)


def humanoid_omni(*, limit: float = 30.0, **options: Any) -> TorsoPosition:
    """Create `Humanoid` with the descriptor `TorsoPosition` and without the reward for
    running.

    **Arguments:** the options of `Humanoid`, and

    - `limit`: limit of the position, m.
    """
    options = {"forward_reward_weight": 0.0} | options
    return TorsoPosition(Humanoid(**options), limit)
