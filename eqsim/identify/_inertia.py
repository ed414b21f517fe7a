r"""Physically consistent inertial parameters of links, and a prior of them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import check_numbers
from ..model import System
from ..model.arrays import as_array
from ..spatial import Mat3, quaternion_matrix
from ..spatial.rotations import matrix_quaternion
from ._unknowns import (
    AbstractPrior,
    AbstractTransform,
    AbstractUnknown,
    Identity,
    Model,
    Widths,
)


_PARTS = ("mass", "com_x", "com_y", "com_z", "xx", "yy", "zz", "xy", "xz", "yz")
_SPLIT = 1e-6
"""Relative difference that is put between principal moments: the axes of equal ones have
no derivative. All inertias are changed by this much."""


class Inertia(AbstractUnknown):
    r"""Mass, center of mass and inertia of links: ten numbers per link.

    The pseudo-inertia is $P = U U^\top$ with
    $U = e^\alpha \begin{pmatrix} e^{d_1} & s_{12} & s_{13} & t_1 \\
    & e^{d_2} & s_{23} & t_2 \\ & & e^{d_3} & t_3 \\ & & & 1 \end{pmatrix}$,
    so that any ten numbers are those of a body that can exist. Values are the mass, the
    center of mass, and the inertia about it in the axes of the link.

    **Arguments:**

    - `links`: names of the links; by default all that move.
    - `prior`: `LogDetPrior`, or a prior of the ten values of each link. Without one, data of
        an arm determine only some combinations, see `Result.identifiability`.

    ??? cite "Reference"
        Rucker and Wensing, *Smooth parameterization of rigid-body inertia*, IEEE RA-L,
        2022.
    """

    links: tuple[str, ...] | None = eqx.field(static=True, default=None)
    prior: AbstractPrior | None = None

    @property
    def transform(self) -> AbstractTransform:
        """The transform from the parameter to the coordinate of the fit."""
        return _LogCholesky()

    def labels(self, name: str, sys: System, widths: Widths) -> tuple[str, ...]:
        names = [sys.links.names[k] for k in self._indices(sys)]
        return tuple(f"{name}.{link}.{part}" for link in names for part in _PARTS)

    def initial_values(self, name: str, sys: System, widths: Widths) -> np.ndarray:
        out = []
        for k in self._indices(sys):
            value = np.asarray(link_values(sys, k), float)
            matrix = np.asarray(pseudo_inertia(jnp.asarray(value)))
            if not np.linalg.eigvalsh(matrix)[0] > 0:
                raise ValueError(
                    f"Unknown {name!r}: link {sys.links.names[k]!r} starts with a mass of "
                    f"{value[0]:g} kg and an inertia that no solid body has (point masses "
                    "and rods are at the bound of what is possible). Give it an inertia."
                )
            out.append(value)
        return np.concatenate(out)

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        links = model.sys.links
        mass, com = links.mass, links.com
        moments, quats = links.inertia, links.inertia_quat
        for n, k in enumerate(self._indices(model.sys)):
            value = link_of_free(free[10 * n : 10 * n + 10])
            principal, quat = _principal(value[4:])
            mass, com = mass.at[k].set(value[0]), com.at[k].set(value[1:4])
            moments, quats = moments.at[k].set(principal), quats.at[k].set(quat)
        where = lambda s: (
            s.links.mass,
            s.links.com,
            s.links.inertia,
            s.links.inertia_quat,
        )
        new = (mass, com, moments, quats)
        return model._replace(sys=eqx.tree_at(where, model.sys, new))

    def inactive(self, mask: System) -> np.ndarray | None:
        return None

    def _indices(self, sys: System) -> list[int]:
        if self.links is None:
            return [k for k in range(sys.nlink) if float(sys.links.mass[k]) > 0]
        return [sys.link(name).index for name in self.links]


class _LogCholesky(AbstractTransform):
    """Ten values of each link, by the logarithm of the Cholesky factor of their
    pseudo-inertia."""

    def value(self, free: Float[Array, " n"]) -> Float[Array, " n"]:
        return jnp.concatenate([link_of_free(x) for x in free.reshape(-1, 10)])

    def free(self, value: np.ndarray) -> np.ndarray:
        matrices = [pseudo_inertia(jnp.asarray(x)) for x in value.reshape(-1, 10)]
        return np.concatenate([free_of_matrix(np.asarray(x)) for x in matrices])

    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Identity().bounds(start)

    def scales(self, value: np.ndarray) -> np.ndarray:
        out = []
        for part in value.reshape(-1, 10):
            inertia = part[4:7].sum() / 3
            length = np.sqrt(inertia / part[0])
            out.append([part[0], *[length] * 3, *[inertia] * 6])
        return np.concatenate(out)

    def problem(self, value: float) -> str | None:
        return None


class LogDetPrior(AbstractPrior):
    r"""Distance of inertias from their start, the same in every frame and unit.

    $s\,(\mathrm{tr}(P_0^{-1} P) - \log\det(P_0^{-1} P) - 4)$ summed over links, with the
    pseudo-inertia $P$ of a link and that of the start, $P_0$. A relative standard
    deviation $\sigma$ of a mass corresponds to about $s = 1/(4 \sigma^2)$.

    **Arguments:**

    - `strength`: $s$.

    ??? cite "Reference"
        Lee, Wensing, Park, *Geometric robot dynamic identification: a convex programming
        approach*, IEEE T-RO, 2020.
    """

    strength: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        accepted = lambda x: x > 0
        check_numbers("LogDetPrior.strength", self.strength, accepted, "positive")

    def cost(
        self, value: Float[Array, " n"], start: Float[Array, " n"]
    ) -> Float[Array, ""]:
        total: Any = 0.0
        for k in range(value.shape[0] // 10):
            at = slice(10 * k, 10 * k + 10)
            ratio = jnp.linalg.solve(
                pseudo_inertia(start[at]), pseudo_inertia(value[at])
            )
            total += jnp.trace(ratio) - jnp.linalg.slogdet(ratio)[1] - 4.0
        return self.strength * total


def pseudo_inertia(value: Float[Array, "10"]) -> Float[Array, "4 4"]:
    r"""Compute $P = \begin{pmatrix} \Sigma & h \\ h^\top & m \end{pmatrix}$.

    **Arguments:**

    - `value`: mass, center of mass, and the inertia about it (xx, yy, zz, xy, xz, yz).
    """
    m, c, (xx, yy, zz, xy, xz, yz) = value[0], value[1:4], value[4:]
    inertia = jnp.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    sigma = 0.5 * jnp.trace(inertia) * jnp.eye(3) - inertia + m * jnp.outer(c, c)
    h = (m * c)[:, None]
    return jnp.block([[sigma, h], [h.T, m[None, None]]])


def link_values(sys: System, k: int) -> Array:
    """Return mass, center of mass and inertia about it of one link, ten numbers."""
    unit = sys.links.inertia_quat[k] / jnp.linalg.norm(sys.links.inertia_quat[k])
    rotation = jnp.reshape(jnp.stack(quaternion_matrix(tuple(unit))), (3, 3))
    full = rotation @ jnp.diag(sys.links.inertia[k]) @ rotation.T
    six = full[jnp.array([0, 1, 2, 0, 0, 1]), jnp.array([0, 1, 2, 1, 2, 2])]
    return jnp.concatenate([sys.links.mass[k][None], sys.links.com[k], six])


def free_of_matrix(matrix: np.ndarray) -> np.ndarray:
    """Compute the ten free numbers of a pseudo-inertia."""
    flip = np.eye(4)[::-1]
    upper = flip @ np.linalg.cholesky(flip @ matrix @ flip) @ flip
    scale = upper[3, 3]
    unit = upper / scale
    logs = np.log(np.diag(unit)[:3])
    rest = [unit[0, 1], unit[0, 2], unit[1, 2], *unit[:3, 3]]
    return np.array([np.log(scale), *logs, *rest])


def link_of_free(free: Float[Array, "10"]) -> Float[Array, "10"]:
    """Compute mass, center of mass and inertia about it from ten free numbers."""
    alpha, d1, d2, d3, s12, s13, s23, t1, t2, t3 = free
    zero = jnp.zeros_like(alpha)
    rows = [
        [jnp.exp(d1), s12, s13],
        [zero, jnp.exp(d2), s23],
        [zero, zero, jnp.exp(d3)],
    ]
    upper = jnp.stack([jnp.stack(row) for row in rows])
    mass = jnp.exp(2 * alpha)
    # Without the last column: the second moments about the center of mass.
    sigma = mass * upper @ upper.T
    inertia = jnp.trace(sigma) * jnp.eye(3, dtype=free.dtype) - sigma
    six = inertia[jnp.array([0, 1, 2, 0, 0, 1]), jnp.array([0, 1, 2, 1, 2, 2])]
    return jnp.concatenate([mass[None], jnp.stack([t1, t2, t3]), six])


def _principal(six: Float[Array, "6"]) -> tuple[Array, Array]:
    """Compute principal moments and the quaternion of their axes."""
    xx, yy, zz, xy, xz, yz = six
    full = jnp.stack(
        [
            jnp.stack([xx * (1 - _SPLIT), xy, xz]),
            jnp.stack([xy, yy, yz]),
            jnp.stack([xz, yz, zz * (1 + _SPLIT)]),
        ]
    )
    moments, axes = jnp.linalg.eigh(full)
    axes = axes.at[:, 0].multiply(jnp.sign(jnp.linalg.det(axes)))
    return moments, jnp.stack(matrix_quaternion(Mat3(*jnp.ravel(axes))))
