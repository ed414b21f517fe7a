"""Reflection of robots: observations and actions as seen in a mirror."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from ..kinematics import forward
from ..model import JointKind, System


def _integers(x: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in x)


class SignedPermutation(eqx.Module):
    r"""The map $x_i \mapsto s_i\, x_{p_i}$ of the last axis.

    **Arguments:**

    - `index`: the entry $p_i$ that becomes each entry.
    - `sign`: its factor $s_i$, 1 or -1.

    **Raises:** `ValueError` if an entry is missing or there twice, or a factor is another
    number.
    """

    index: tuple[int, ...] = eqx.field(static=True, converter=_integers)
    sign: tuple[int, ...] = eqx.field(static=True, converter=_integers)

    def __check_init__(self):
        n = len(self.index)
        if sorted(self.index) != list(range(n)):
            raise ValueError(
                f"`SignedPermutation.index` must have each of 0 to {n - 1} once, got "
                f"{self.index}."
            )
        if len(self.sign) != n or not {*self.sign} <= {1, -1}:
            raise ValueError(
                f"`SignedPermutation.sign` must be {n} numbers that are 1 or -1, one per "
                f"entry of `index`, got {self.sign}."
            )

    @property
    def is_own_inverse(self) -> bool:
        """True if the map, applied twice, changes nothing."""
        back = [self.index[i] for i in self.index]
        signs = [s * self.sign[i] for s, i in zip(self.sign, self.index)]
        return back == list(range(len(back))) and all(s == 1 for s in signs)

    def __call__(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        sign = jnp.asarray(self.sign, x.dtype)
        return x[..., np.array(self.index)] * jnp.broadcast_to(sign, x.shape)

    @staticmethod
    def join(parts: Sequence["SignedPermutation"]) -> "SignedPermutation":
        """Return the map of vectors that are joined, each of which has its own map."""
        starts = np.cumsum([0, *(len(part.index) for part in parts)])
        index = [s + i for s, part in zip(starts, parts) for i in part.index]
        sign = [s for part in parts for s in part.sign]
        return SignedPermutation(tuple(int(i) for i in index), tuple(sign))


class Reflection(eqx.Module):
    r"""A reflection of a task at the plane through its x and z axes.

    If the robot and its task are symmetric, the reflection of a transition is a transition
    with the same reward, and the reflection of an optimal action is optimal in the
    reflected state.

    **Arguments:**

    - `obs`: maps of the vectors of an observation, in the same structure.
    - `action`: map of actions.

    **Raises:** `ValueError` if a map is not its own inverse.

    ??? cite "Reference"
        Abdolhosseini et al., *On learning symmetric locomotion*, 2019, section 4.
    """

    obs: PyTree[Any]
    action: SignedPermutation

    def __check_init__(self):
        is_map = lambda x: isinstance(x, SignedPermutation)
        for each in jax.tree_util.tree_leaves((self.obs, self.action), is_leaf=is_map):
            if is_map(each) and not each.is_own_inverse:
                raise ValueError(
                    "A reflection, applied twice, changes nothing; that is not so for "
                    f"{each}. Give both entries of a pair the same sign."
                )

    def reflect_obs(self, obs: PyTree[Array]) -> PyTree[Array]:
        """Reflect observations.

        **Raises:** `ValueError` if they have another structure or size than `obs`.
        """
        is_map = lambda x: isinstance(x, SignedPermutation)
        maps, structure = jax.tree_util.tree_flatten(self.obs, is_leaf=is_map)
        found, other = jax.tree_util.tree_flatten(obs)
        sizes = [x.shape[-1:] for x in found]
        expected = [(len(each.index),) for each in maps]
        if structure != other or sizes != expected:
            raise ValueError(
                f"The reflection is that of observations of sizes {expected} in {structure}, "
                f"got {sizes} in {other}. A wrapper has changed the observation: reflect "
                "inside it, or leave it out."
            )
        return structure.unflatten([f(x) for f, x in zip(maps, found, strict=True)])

    def features(self, parts: Sequence[str] = ()) -> SignedPermutation:
        """Return the map of an observation whose parts are joined in the order of their
        names.

        **Arguments:**

        - `parts`: names of the parts that are used; all if empty.
        """
        if isinstance(self.obs, SignedPermutation):
            return self.obs
        used = sorted(parts or self.obs)
        return SignedPermutation.join([self.obs[name] for name in used])


@runtime_checkable
class Symmetric(Protocol):
    """A task that has a reflection."""

    def reflection(self) -> Reflection:
        """Return the reflection of observations and actions. It is called inside
        transformations, where the numbers of the robot are not known."""
        ...


# Sides in names, the longer before those that they contain.
_SIDES = (
    ("left", "right"),
    ("Left", "Right"),
    ("LEFT", "RIGHT"),
    ("FL", "FR"),
    ("RL", "RR"),
    ("HL", "HR"),
    ("LF", "RF"),
    ("LH", "RH"),
    ("LL_", "LR_"),
    ("fl_", "fr_"),
    ("hl_", "hr_"),
    ("rl_", "rr_"),
    ("l_", "r_"),
    ("L_", "R_"),
)


def reflected_name(name: str, names: Sequence[str]) -> str:
    """Return the name of the same part on the other side; the name itself if there is none,
    as in the middle of a robot."""
    for left, right in _SIDES:
        for one, other in ((left, right), (right, left)):
            if one in name and (new := name.replace(one, other, 1)) in names:
                return new
    return name


def reflect_joints(
    sys: System, q: Float[Array, " nq"], joints: Sequence[str]
) -> SignedPermutation:
    r"""Compute the map of joint angles of a robot to those of its mirror image.

    Joints of both sides are found by their names, such as `left_knee` and `right_knee`, or
    `FL_calf` and `FR_calf`. A reflection maps an axis $(x, y, z)$ of rotation to
    $(-x, y, -z)$: the sign tells whether the axis of the other side points there.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates in which it is symmetric, with x forward.
    - `joints`: names of hinges.

    **Raises:** `ValueError` if a joint is no hinge, the axes of two sides are not mirror
    images, or the numbers of the robot are not known, as inside a transformation.
    """
    if any(isinstance(x, Tracer) for x in jax.tree_util.tree_leaves((sys, q))):
        raise ValueError(
            "`reflect_joints` needs the numbers of the robot, which are not known inside a "
            "transformation. Call it in `__init__`, and keep the result in a static field."
        )
    with jax.ensure_compile_time_eval():
        rot = np.asarray(forward(sys, jnp.asarray(q)).rot)
    axes = {}
    for name in joints:
        joint = sys.joint(name)
        if sys.joints.kinds[joint.index] is not JointKind.REVOLUTE:
            raise ValueError(
                f"The joint {name!r} must be a hinge, got "
                f"{sys.joints.kinds[joint.index].name}. Leave it out."
            )
        link = sys.joints.links[joint.index]
        axes[name] = rot[link] @ np.asarray(sys.joints.axis[joint.index])
    index, sign = [], []
    for name in joints:
        other = reflected_name(name, joints)
        same = float(axes[name] @ (axes[other] * np.array([-1.0, 1.0, -1.0])))
        if abs(abs(same) - 1.0) > 1e-2:
            raise ValueError(
                f"The axes of the joints {name!r} and {other!r} are no mirror images: "
                f"{axes[name].round(3)} and {axes[other].round(3)} at `q`. Pass coordinates in "
                "which the robot is symmetric and looks along x."
            )
        index.append(joints.index(other))
        sign.append(1 if same > 0.0 else -1)
    return SignedPermutation(tuple(index), tuple(sign))
