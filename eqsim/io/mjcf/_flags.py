"""Flags of MJCF's element `flag`: enabled parts of the simulation."""

from typing import Any, NamedTuple

from ._mujoco import engine


class Flags(NamedTuple):
    """The parts of the simulation that a model's flags enable.

    **Arguments:**

    - `contact`, `limit`, `frictionloss`, `equality`: kinds of constraints.
    - `spring`, `damper`: joint springs and dampers.
    - `passive`: gravity compensation and fluid forces.
    - `gravity`, `actuation`, `clampctrl`, `filterparent`, `refsafe`, `eulerdamp`: flags
        with the meaning of MJCF.
    """

    contact: bool
    limit: bool
    frictionloss: bool
    equality: bool
    spring: bool
    damper: bool
    passive: bool
    gravity: bool
    actuation: bool
    clampctrl: bool
    filterparent: bool
    refsafe: bool
    eulerdamp: bool


def read_flags(model: Any) -> Flags:
    """Read the flags of a `mujoco.MjModel`."""
    mujoco = engine()
    bit = mujoco.mjtDisableBit

    def on(*bits) -> bool:
        return not any(model.opt.disableflags & int(each) for each in bits)

    return Flags(
        contact=on(bit.mjDSBL_CONTACT, bit.mjDSBL_CONSTRAINT),
        limit=on(bit.mjDSBL_LIMIT, bit.mjDSBL_CONSTRAINT),
        frictionloss=on(bit.mjDSBL_FRICTIONLOSS, bit.mjDSBL_CONSTRAINT),
        equality=on(bit.mjDSBL_EQUALITY, bit.mjDSBL_CONSTRAINT),
        spring=on(bit.mjDSBL_SPRING),
        damper=on(bit.mjDSBL_DAMPER),
        passive=on(bit.mjDSBL_SPRING) or on(bit.mjDSBL_DAMPER),
        gravity=on(bit.mjDSBL_GRAVITY),
        actuation=on(bit.mjDSBL_ACTUATION),
        clampctrl=on(bit.mjDSBL_CLAMPCTRL),
        filterparent=on(bit.mjDSBL_FILTERPARENT),
        refsafe=on(bit.mjDSBL_REFSAFE),
        eulerdamp=on(bit.mjDSBL_EULERDAMP),
    )
