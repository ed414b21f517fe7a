r"""Costs of contacts with friction: the pyramidal and the elliptic cone.

A contact has $d$ residuals: one along the normal, and one for each direction of friction
(two sliding, then one torsional, then two rolling).

- `Pyramid`: the friction axes are multiplied by their coefficients. Each of the $2(d-1)$
  edges $x_0 \pm x_k$ is an inequality.
- `Elliptic`: with $N = \mu x_0$, $T = |(\mu_k x_k)_k|$ the cost is zero where $N \ge \mu
  T$; quadratic, $\tfrac12 \sum_k D_k x_k^2$, where $\mu N + T \le 0$; and in between
  $\tfrac12 D_m (N - \mu T)^2$ with $D_m = D_0 / (\mu^2 (1 + \mu^2))$.

Source: MuJoCo documentation, *Computation*, "Friction cones" and "Reduced problem".
"""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from ..spatial import safe_sqrt
from ._costs import AbstractCost, active, kept_or_changed, Residual, Weights


class Pyramid(AbstractCost):
    """Pyramidal friction cones.

    - `weight`: weight of each edge; zero where there is no contact.
    """

    weight: Any

    def piece(self, x: Residual) -> Any:
        return tuple(active(self.weight, edge) for edge in _edges(x))

    def force(self, piece: Any, x: Residual) -> Residual:
        edges = [
            -(self.weight * one) * edge
            for one, edge in zip(piece, _edges(x), strict=True)
        ]
        ahead, behind = edges[0::2], edges[1::2]
        sides = (a - b for a, b in zip(ahead, behind, strict=True))
        return (sum(edges[1:], edges[0]), *sides)

    def model(self, piece: Any, x: Residual) -> Residual:
        return self.force(piece, x)

    def stiffness(self, piece: Any) -> Weights:
        w = [self.weight * one for one in piece]
        rows: list[tuple] = [(sum(w[1:], w[0]),)]
        for k, (a, b) in enumerate(zip(w[0::2], w[1::2], strict=True)):
            rows.append((a - b, *([None] * k), a + b))
        return tuple(rows)

    def update(self, old, x: Residual, offset: Residual, tolerance: float):
        return kept_or_changed(old, self.piece(x), _edges(x), _edges(offset), tolerance)


def _edges(x: Residual) -> tuple:
    """Return the residuals of the edges of pyramids: plus and minus in turn."""
    return tuple(edge for side in x[1:] for edge in (x[0] + side, x[0] - side))


class _Zones(NamedTuple):
    """Length of the scaled friction residual, and 1 where a contact sticks or slides."""

    length: Any
    sticking: Any
    sliding: Any


class Elliptic(AbstractCost):
    """Elliptic friction cones.

    - `weight`: $D_0$; zero where there is no contact.
    - `friction`: coefficients $\\mu_k$, one array for each friction direction.
    - `mu`: coefficient $\\mu$ of the regularized cone, that of the first direction over
        the square root of `impratio`.
    """

    piecewise_quadratic: ClassVar[bool] = False
    weight: Any
    friction: tuple[Any, ...]
    mu: Any

    def piece(self, x: Residual) -> Any:
        return x

    def force(self, piece: Any, x: Residual) -> Residual:
        at = self._zones(piece)
        u = [mu * y for mu, y in zip(self.friction, x[1:], strict=True)]
        length = safe_sqrt(sum(y * y for y in u))
        safe = jnp.where(at.sliding > 0.0, length, 1.0)
        short = self.mu * (x[0] - length)
        normal = -self._slope() * self.mu * short * at.sliding
        forces = [normal - self.weight * x[0] * at.sticking]
        for mu, y, z, stick in zip(
            self.friction, u, x[1:], self._sticking(), strict=True
        ):
            forces.append(-normal * mu * y / safe - stick * z * at.sticking)
        return tuple(forces)

    def model(self, piece: Any, x: Residual) -> Residual:
        # The cost is homogeneous of degree two, so its gradient is its Hessian times x.
        rows = _full(self.stiffness(piece))
        return tuple(-sum(w * y for w, y in zip(row, x, strict=True)) for row in rows)

    def stiffness(self, piece: Any) -> Weights:
        at, n = self._zones(piece), len(piece)
        u = [mu * y for mu, y in zip(self.friction, piece[1:], strict=True)]
        safe = jnp.where(at.sliding > 0.0, at.length, 1.0)
        unit = [y / safe for y in u]
        scale = self._slope() * self.mu * self.mu * at.sliding
        # Gradient of (x_0 - T), and the curvature of T times what is missing.
        rate = [1.0, *(-mu * e for mu, e in zip(self.friction, unit, strict=True))]
        bend = scale * (at.length - piece[0]) / safe
        stick = [self.weight, *self._sticking()]
        rows = []
        for i in range(n):
            row = [scale * rate[i] * rate[j] for j in range(i + 1)]
            for j in range(1, i + 1):
                turn = (1.0 if i == j else 0.0) - unit[i - 1] * unit[j - 1]
                both = self.friction[i - 1] * self.friction[j - 1]
                row[j] = row[j] + bend * both * turn
            row[i] = row[i] + stick[i] * at.sticking
            rows.append(tuple(row))
        return tuple(rows)

    def update(self, old, x: Residual, offset: Residual, tolerance: float):
        real, assumed = self.force(x, x), self.model(old, x)
        # All in units of the normal force.
        scale = [1.0, *self.friction]
        size = sum(jnp.abs(a) for a in (*offset, *x))
        changed = False
        for f, g, mu in zip(real, assumed, scale, strict=True):
            limit = tolerance * self.weight * mu * size
            changed = (jnp.abs(f - g) > limit) | changed
        return x, changed

    def _slope(self):
        square = self.mu * self.mu
        return self.weight / (square * (1.0 + square))

    def _sticking(self) -> list:
        """Return the weights of the friction directions where the contact sticks."""
        square = self.mu * self.mu
        return [self.weight * mu * mu / square for mu in self.friction]

    def _zones(self, x: Residual) -> _Zones:
        u = [mu * y for mu, y in zip(self.friction, x[1:], strict=True)]
        length = safe_sqrt(sum(y * y for y in u))
        exists = self.weight > 0.0
        sticking = exists & (self.mu * self.mu * x[0] + length <= 0.0) & (x[0] < 0.0)
        sliding = exists & ~sticking & (x[0] < length) & (length > 0.0)
        number = lambda mark: mark.astype(length.dtype)
        return _Zones(length, number(sticking), number(sliding))


def _full(rows: Weights) -> list[list]:
    n = len(rows)
    return [[rows[max(i, j)][min(i, j)] for j in range(n)] for i in range(n)]
