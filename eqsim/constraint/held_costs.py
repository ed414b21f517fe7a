r"""Costs of the second problem of a robot without slip, see `noslip.py`: friction that is
nearly rigid, within cones of given normal forces.

With regularized friction $f$, contacts slip slowly even below the cone. Here the weights of
friction are $1/\epsilon$ times those of the first problem, up to forces that its solution
determines: $|f_k| \le f^+ + f^-$ along each direction of a pyramid, where these are the forces
of its two edges, and $\sum (f_k/\mu_k)^2 \le f_n^2$ in an elliptic cone.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import lax

from ..spatial import safe_sqrt
from ..spatial.clamps import at_least
from .costs import AbstractCost, Elliptic, Huber, OneSided, Pyramid, Residual, Weights


def held(cost: AbstractCost, x: Residual, factor) -> AbstractCost:
    r"""Return the cost of rows in the second problem.

    **Arguments:**

    - `cost`, `x`: cost in the first problem, and residuals at its solution.
    - `factor`: $1/\epsilon$.
    """
    piece = cost.piece(lax.stop_gradient(x))
    force = cost.force(piece, x)
    if isinstance(cost, Huber):
        return Huber(factor * cost.weight, cost.largest)
    if isinstance(cost, Pyramid):
        edges = cost.edge_forces(piece, x)
        pairs = zip(edges[0::2], edges[1::2], strict=True)
        largest = tuple(ahead + behind for ahead, behind in pairs)
        return HeldPyramid(2.0 * factor * cost.weight, force[0], largest)
    if isinstance(cost, Elliptic):
        push = force[0] if cost.adhesion is None else force[0] + cost.adhesion
        weight = factor * cost.weight / (cost.mu * cost.mu)
        radius = at_least(push, 0.0)
        return HeldElliptic(weight, cost.friction, force[0], radius)
    weight = cost.weight if isinstance(cost, OneSided) else None
    return Held(weight, force)


def _where(weight, force):
    return jnp.where(weight > 0.0, force, 0.0)


class Held(AbstractCost):
    """Constant forces.

    - `weight`: zero where there is no constraint; None: there is one everywhere.
    - `forces`: the forces.
    """

    weight: Any
    forces: Residual

    def piece(self, x: Residual) -> Any:
        return ()

    def force(self, piece: Any, x: Residual) -> Residual:
        own = (f + 0.0 * y for f, y in zip(self.forces, x, strict=True))
        if self.weight is None:
            return tuple(own)
        return tuple(_where(self.weight, f) for f in own)

    def model(self, piece: Any, x: Residual) -> Residual:
        return self.force(piece, x)

    def stiffness(self, piece: Any) -> Weights:
        zero = jnp.zeros_like(self.forces[0])
        return tuple((*k * [None], zero) for k in range(len(self.forces)))

    def update(self, old, x: Residual, offset: Residual, tolerance: float):
        return (), jnp.zeros_like(x[0], dtype=bool)


class HeldPyramid(AbstractCost):
    """Friction along the directions of pyramids.

    - `weight`: weight along each direction; zero where there is no contact.
    - `normal`: force along the normal.
    - `largest`: largest force along each direction.
    """

    weight: Any
    normal: Any
    largest: tuple[Any, ...]

    def piece(self, x: Residual) -> Any:
        found = []
        for y, largest in zip(x[1:], self.largest, strict=True):
            force = self.weight * y
            ahead, behind = force >= largest, force <= -largest
            number = ahead.astype(y.dtype) - behind.astype(y.dtype)
            found.append(number)
        return tuple(found)

    def force(self, piece: Any, x: Residual) -> Residual:
        parts = zip(piece, self._stiff(piece), x[1:], self.largest, strict=True)
        sides = (-w * y - one * _where(self.weight, most) for one, w, y, most in parts)
        return (_where(self.weight, self.normal), *sides)

    def model(self, piece: Any, x: Residual) -> Residual:
        return self.force(piece, x)

    def stiffness(self, piece: Any) -> Weights:
        rows: list[tuple] = [(jnp.zeros_like(self.weight),)]
        for k, weight in enumerate(self._stiff(piece)):
            rows.append((*(k + 1) * [None], weight))
        return tuple(rows)

    def update(self, old, x: Residual, offset: Residual, tolerance: float):
        new, changed = self.piece(x), False
        pieces = []
        parts = zip(new, old, x[1:], offset[1:], self.largest, strict=True)
        for now, before, y, start, most in parts:
            # Where the force is the largest one, pieces differ by rounding.
            slack = tolerance * (jnp.abs(start) + jnp.abs(y - start))
            edge = jnp.abs(self.weight * jnp.abs(y) - most) > self.weight * slack
            differs = (now != before) & edge
            pieces.append(jnp.where(differs, now, before))
            changed = differs | changed
        return tuple(pieces), changed

    def _stiff(self, piece) -> list:
        return [
            jnp.where(most > 0.0, self.weight * (1.0 - jnp.abs(one)), 0.0)
            for one, most in zip(piece, self.largest, strict=True)
        ]


class HeldElliptic(AbstractCost):
    r"""Friction within elliptic cones.

    - `weight`: weight $c$ of the scaled residuals $u_k = \mu_k x_k$; zero where there is no
        contact.
    - `friction`: coefficients $\mu_k$.
    - `normal`: force along the normal.
    - `radius`: largest length of the scaled force.
    """

    piecewise_quadratic: ClassVar[bool] = False
    weight: Any
    friction: tuple[Any, ...]
    normal: Any
    radius: Any

    def piece(self, x: Residual) -> Any:
        return x

    def force(self, piece: Any, x: Residual) -> Residual:
        scaled, length = self._scaled(x)
        slope = self._slope(self._slides(piece), length)
        sides = (-mu * slope * u for mu, u in zip(self.friction, scaled, strict=True))
        return (_where(self.weight, self.normal), *sides)

    def model(self, piece: Any, x: Residual) -> Residual:
        # The forces of sliding contacts do not depend on the length of the residual.
        slides, (scaled, length) = self._slides(piece), self._scaled(piece)
        start = jnp.where(slides, self._slope(slides, length), 0.0)
        rows = self.stiffness(piece)
        sides = []
        for k, (mu, u) in enumerate(zip(self.friction, scaled, strict=True), start=1):
            terms = [rows[max(k, j)][min(k, j)] * x[j] for j in range(1, len(x))]
            sides.append(-mu * start * u - sum(terms[1:], terms[0]))
        return (_where(self.weight, self.normal), *sides)

    def stiffness(self, piece: Any) -> Weights:
        slides, (scaled, length) = self._slides(piece), self._scaled(piece)
        slope, safe = self._slope(slides, length), jnp.where(slides, length, 1.0)
        unit = [jnp.where(slides, u / safe, 0.0) for u in scaled]
        rows: list[tuple] = [(jnp.zeros_like(self.weight),)]
        for i, mu in enumerate(self.friction):
            row = [
                slope
                * mu
                * self.friction[j]
                * ((1.0 if i == j else 0.0) - unit[i] * unit[j])
                for j in range(i + 1)
            ]
            rows.append((None, *row))
        return tuple(rows)

    def update(self, old, x: Residual, offset: Residual, tolerance: float):
        real, assumed = self.force(x, x), self.model(old, x)
        _, length = self._scaled(x)
        slope = self._slope(self._slides(x), length)
        parts = zip(self.friction, offset[1:], x[1:], strict=True)
        size = sum(mu * (jnp.abs(a) + jnp.abs(b)) for mu, a, b in parts)
        changed = False
        for f, g, mu in zip(real[1:], assumed[1:], self.friction, strict=True):
            changed = (jnp.abs(f - g) > tolerance * mu * slope * size) | changed
        return x, changed

    @property
    def _most(self):
        return _where(self.weight, self.radius)

    def _slope(self, slides, length):
        """Return the scaled force per scaled residual, which is zero without a normal
        force."""
        sticking = jnp.where(self._most > 0.0, self.weight, 0.0)
        return jnp.where(slides, self._most / jnp.where(slides, length, 1.0), sticking)

    def _scaled(self, x: Residual) -> tuple[list, Any]:
        u = [mu * y for mu, y in zip(self.friction, x[1:], strict=True)]
        return u, safe_sqrt(sum(y * y for y in u))

    def _slides(self, x: Residual):
        length = self._scaled(x)[1]
        return (self.weight * length > self._most) & (length > 0.0)
