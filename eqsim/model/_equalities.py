import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ._fields import as_array
from ._kinds import EqualityKind


class Equalities(eqx.Module):
    r"""Equality constraints between two links, two joints or two tendons.

    `CONNECT` keeps a point of the first object at a point of the second, `WELD` also
    their relative orientation; the objects are links or sites. `JOINT` and `TENDON`
    couple positions, where $x = y - y_0$ is the deviation of the second one from its
    reference,

    $$q - q_0 = c_0 + c_1 x + c_2 x^2 + c_3 x^3 + c_4 x^4.$$

    **Arguments:**

    - `names`, `kinds`: one entry per constraint.
    - `objects`: first and second object: links (-1: the world), sites, joints or tendons.
        A joint or tendon without partner (-1) is held at $q_0 + c_0$.
    - `at_sites`: true if the objects of a connect or weld are sites, whose frames are
        then held together; `anchors` and `relative_quat` are not used.
    - `active`: 1 for active constraints, 0 for inactive ones. Can be changed, batched
        and randomized without recompiling.
    - `anchors`: points on the first and on the second link, in their frames, m.
    - `relative_quat`: orientation of the second link relative to the first (weld).
    - `torque_scale`: length that scales rotations relative to translations, m (weld).
    - `coefficients`: polynomial coefficients $c_0$ to $c_4$.
    - `solref`, `solimp`: softness, as in MuJoCo.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    kinds: tuple[EqualityKind, ...] = eqx.field(static=True)
    objects: tuple[tuple[int, int], ...] = eqx.field(static=True)
    at_sites: tuple[bool, ...] = eqx.field(static=True)
    active: Float[Array, " nequality"] = eqx.field(converter=as_array)
    anchors: Float[Array, "nequality 2 3"] = eqx.field(converter=as_array)
    relative_quat: Float[Array, "nequality 4"] = eqx.field(converter=as_array)
    torque_scale: Float[Array, " nequality"] = eqx.field(converter=as_array)
    coefficients: Float[Array, "nequality 5"] = eqx.field(converter=as_array)
    solref: Float[Array, "nequality 2"] = eqx.field(converter=as_array)
    solimp: Float[Array, "nequality 5"] = eqx.field(converter=as_array)

    @staticmethod
    def none() -> "Equalities":
        """Return no constraints."""
        one, five = np.zeros(0), np.zeros((0, 5))
        return Equalities(
            names=(),
            kinds=(),
            objects=(),
            at_sites=(),
            active=one,
            anchors=np.zeros((0, 2, 3)),
            relative_quat=np.zeros((0, 4)),
            torque_scale=one,
            coefficients=five,
            solref=np.zeros((0, 2)),
            solimp=five,
        )
