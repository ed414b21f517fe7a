r"""Costs of constraint rows: inequality, equality, dry friction and friction cones, and
the softness from which their weights are computed.

The cost $s(x)$ of a row is convex in its residual $x = J a - a_\mathrm{ref}$; its force is
$f = -s'(x)$. With one residual, the cost is piecewise quadratic with the weight $D$ as slope
of the force:

| class | force |
|---|---|
| `OneSided` | $-D x$ while $x < 0$, else zero |
| `TwoSided` | $-D x$ |
| `Huber` | $-\mathrm{clip}(D x, \pm f_\mathrm{max})$ |

A *piece* says on which quadratic piece of the cost a residual is. Given the piece, a force
is linear in the residual, and a Newton step is the solution of a linear system.

A contact with friction has $d$ residuals: one along the normal, and one for each direction
of friction (two sliding, then one torsional, then two rolling).

- `Pyramid`: the friction axes are multiplied by their coefficients. Each of the $2(d-1)$
  edges $x_0 \pm x_k$ is an inequality.
- `Elliptic`: with $N = \mu x_0$, $T = |(\mu_k x_k)_k|$ the cost is zero where $N \ge \mu
  T$; quadratic, $\tfrac12 \sum_k D_k x_k^2$, where $\mu N + T \le 0$; and in between
  $\tfrac12 D_m (N - \mu T)^2$ with $D_m = D_0 / (\mu^2 (1 + \mu^2))$.

Sources: MuJoCo documentation, *Computation*, "Constraint model", "Friction cones" and
"Reduced problem"; `getimpedance` and `mj_makeImpedance` in `engine_core_constraint.c`;
Todorov, *Convex and analytically-invertible dynamics with contacts and constraints*, 2014.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu

from ..spatial import clamp, safe_sqrt
from ..spatial.clamps import at_least


Residual = tuple[Any, ...]
"""Residuals or forces of rows: one array `(n, *batch)` for each dimension."""

Weights = tuple[tuple[Any, ...], ...]
"""A symmetric matrix per row, by entry; None stands for zero."""


class AbstractCost(eqx.Module):
    """The costs of n constraints of d dimensions each.

    Residuals, forces and pieces are trees of arrays with leading axis n.

    - `piecewise_quadratic`: True if the cost is quadratic on each of its pieces.
    """

    piecewise_quadratic: ClassVar[bool] = True

    @abc.abstractmethod
    def piece(self, x: Residual) -> Any:
        """Return the pieces of the cost at residuals."""

    @abc.abstractmethod
    def force(self, piece: Any, x: Residual) -> Residual:
        """Compute forces on given pieces."""

    @abc.abstractmethod
    def model(self, piece: Any, x: Residual) -> Residual:
        """Compute the forces that Newton's method assumes: on given pieces, and linear in
        the residuals."""

    @abc.abstractmethod
    def stiffness(self, piece: Any) -> Weights:
        r"""Compute $-\partial f / \partial x$ of `model`, and of `force` at the residuals of
        which these are the pieces."""

    @abc.abstractmethod
    def update(
        self, old: Any, x: Residual, offset: Residual, tolerance: float
    ) -> tuple[Any, Any]:
        """Return the pieces at residuals, and whether each has changed since `old`.

        **Arguments:**

        - `offset`: residuals at zero acceleration, the size of the terms that were added
            up to `x`.
        - `tolerance`: changes below it, relative to these terms, are rounding.
        """


def kept_or_changed(old, new, x, offset, tolerance: float):
    """Return `new` where it differs from `old` beyond rounding, else `old`, and whether
    any part of a row differs.

    **Arguments:** trees of the same structure, as of `AbstractCost.update`.
    """
    changed = jtu.tree_map(
        lambda n, o, y, size: _changed(n, o, y, jnp.abs(size), tolerance),
        new,
        old,
        x,
        offset,
    )
    piece = jtu.tree_map(jnp.where, changed, new, old)
    any_part = False
    for part in jtu.tree_leaves(changed):
        any_part = part | any_part
    return piece, any_part


def _changed(new, old, x, scale, tolerance: float):
    return (new != old) & (jnp.abs(x) > tolerance * (scale + jnp.abs(x - scale)))


def active(weight, x):
    """Return 1 where an inequality is violated, else 0."""
    return (weight * x < 0.0).astype(x.dtype)


def _net(cost: "OneSided | Pyramid | Elliptic", forces: Residual) -> Residual:
    """Move the cone of the forces of contacts along the normal, by their adhesion."""
    if cost.adhesion is None:
        return forces
    pull = jnp.where(cost.weight > 0.0, cost.adhesion, 0.0)
    return (forces[0] - pull, *forces[1:])


class OneSided(AbstractCost):
    """Inequalities: a force acts while the residual is negative.

    - `weight`: $D$; zero where there is no constraint.
    - `adhesion`: constant force against it, see `contact_rows.py`; None: zero.
    """

    weight: Any
    adhesion: Any = None

    def piece(self, x: Residual) -> Any:
        return active(self.weight, x[0])

    def force(self, piece: Any, x: Residual) -> Residual:
        return _net(self, (-self.weight * piece * x[0],))

    def model(self, piece: Any, x: Residual) -> Residual:
        return self.force(piece, x)

    def stiffness(self, piece: Any) -> Weights:
        return ((self.weight * piece,),)

    def update(self, old, x: Residual, offset: Residual, tolerance: float):
        return kept_or_changed(old, self.piece(x), x[0], offset[0], tolerance)


class TwoSided(AbstractCost):
    """Equalities: a force acts on either side.

    - `weight`: $D$; zero where there is no constraint.
    """

    weight: Any

    def piece(self, x: Residual) -> Any:
        return ()

    def force(self, piece: Any, x: Residual) -> Residual:
        return (-self.weight * x[0],)

    def model(self, piece: Any, x: Residual) -> Residual:
        return self.force(piece, x)

    def stiffness(self, piece: Any) -> Weights:
        return ((self.weight,),)

    def update(self, old, x: Residual, offset: Residual, tolerance: float):
        return (), jnp.zeros_like(x[0], dtype=bool)


class Huber(AbstractCost):
    """Dry friction: a force of limited size against the motion.

    - `weight`: $D$.
    - `largest`: the largest force.
    """

    weight: Any
    largest: Any

    def piece(self, x: Residual) -> Any:
        force = self.weight * x[0]
        ahead, behind = (force >= self.largest), (force <= -self.largest)
        return ahead.astype(force.dtype) - behind.astype(force.dtype)

    def force(self, piece: Any, x: Residual) -> Residual:
        return (-self._stiff(piece) * x[0] - piece * self.largest,)

    def model(self, piece: Any, x: Residual) -> Residual:
        return self.force(piece, x)

    def stiffness(self, piece: Any) -> Weights:
        return ((self._stiff(piece),),)

    def update(self, old, x: Residual, offset: Residual, tolerance: float):
        return kept_or_changed(old, self.piece(x), x[0], offset[0], tolerance)

    def _stiff(self, piece):
        # Without friction, the force is zero on both sides of the corner.
        return jnp.where(self.largest > 0.0, self.weight * (1.0 - jnp.abs(piece)), 0.0)


# Softness.


class Softness(NamedTuple):
    """The state-independent part of a row.

    - `b`, `k`: damping and stiffness of the reference acceleration.
    - `solimp`: parameters of the impedance, clipped.
    """

    b: Any
    k: Any
    solimp: list


def softness(solref, solimp, dt, safe: bool) -> Softness:
    r"""Compute damping and stiffness of a row.

    Standard format (both numbers positive: time constant $t$, damping ratio $\zeta$):
    $b = 2/(d\,t)$, $k = 1/(d\,t\,\zeta)^2$, with $d$ the largest impedance; direct
    format (both negative or zero): $b = -r_1/d$, $k = -r_0/d^2$. Time constants below
    `2 dt` are raised to it if `safe`. A mixture of the formats counts as the default
    `(0.02, 1)`.
    """
    dmin, dmax = (clamp(x, 1e-4, 0.9999) for x in solimp[:2])
    width = at_least(solimp[2], 0.0)
    middle = clamp(solimp[3], 1e-4, 0.9999)
    power = at_least(solimp[4], 1.0)
    mixed = (solref[0] > 0.0) != (solref[1] > 0.0)
    time = jnp.where(mixed, 0.02, solref[0])
    ratio = jnp.where(mixed, 1.0, solref[1])
    standard = time > 0.0
    raised = at_least(time, 2.0 * dt) if safe else time
    t = jnp.where(standard, raised, 1.0)
    z = jnp.where(standard, ratio, 1.0)
    k = jnp.where(standard, 1.0 / (dmax * t * z) ** 2, -time / dmax**2)
    b = jnp.where(standard, 2.0 / (dmax * t), -ratio / dmax)
    return Softness(b, k, [dmin, dmax, width, middle, power])


def impedance(soft: Softness, violation):
    r"""Compute the impedance $d(r)$ of a row at constraint violation `violation`, negative inside.

    It rises from `dmin` to `dmax` over the width, along two powers that meet at
    `middle`.
    """
    dmin, dmax, width, middle, power = soft.solimp
    flat = (width <= 1e-15) | (dmin == dmax)
    x = jnp.abs(violation) / jnp.where(flat, 1.0, width)
    saturated = x >= 1.0
    # Keep powers away from zero: their derivative there is not finite.
    started = x > 0.0
    inner = jnp.where(started & ~saturated, x, 0.5)
    early = inner <= middle
    near = jnp.where(early, inner, 1.0 - inner)
    meet = jnp.where(early, middle, 1.0 - middle)
    curve = near * (near / meet) ** (power - 1.0)
    y = jnp.where(early, curve, 1.0 - curve)
    y = jnp.where(saturated, 1.0, jnp.where(started, y, 0.0))
    return jnp.where(flat, 0.5 * (dmin + dmax), dmin + y * (dmax - dmin))


LAST_ONSET = 12.0
"""Distance from a surface, in widths of the onset, beyond which no contact exists."""


class Onset(NamedTuple):
    """The onset of a constraint.

    - `exists`: true if there is a constraint.
    - `violation`: effective violation, m.
    - `share`: factor on the stiffness.
    """

    exists: Any
    violation: Any
    share: Any


def onset(violation, width) -> Onset:
    r"""Smooth the onset of a constraint, which in MuJoCo begins abruptly at $r = 0$.

    With a width $w > 0$ the violation is $r_w = -w \log(1 + e^{-r/w})$, and the
    stiffness is multiplied by $\partial r_w / \partial r = 1/(1 + e^{r/w})$. Both tend to
    those of MuJoCo for $w \to 0$, exponentially where $|r| \gg w$; at $r = 0$, $r_w = -w
    \log 2$ and the share is 1/2. Beyond $12\,w$ (a share of 6e-6) there is none.
    Without a width the onset is MuJoCo's.
    """
    if width is None:
        return Onset(violation < 0.0, violation, jnp.ones_like(violation))
    smooth = width > 0.0
    x = violation / jnp.where(smooth, width, 1.0)
    share = jnp.where(smooth, jax.nn.sigmoid(-x), 1.0)
    moved = jnp.where(smooth, -width * jax.nn.softplus(-x), violation)
    return Onset(jnp.where(smooth, x < LAST_ONSET, violation < 0.0), moved, share)


def stiffness_weight(imp, inverse_weight):
    r"""Compute $D = 1/R$ with $R = (1 - d)/d \cdot A$, where $A$ is the inverse weight."""
    return 1.0 / jnp.maximum((1.0 - imp) / imp * inverse_weight, 1e-15)


def has_effect(jac, inverse_weight):
    """Return which rows are part of the problem, `(n, *batch)`.

    MuJoCo leaves out rows whose Jacobian is zero: no joint acceleration changes them. Here
    they are left out only if their inverse weight is zero too, so that their force would
    be about 1e15. The force of the others does not act either, but keeps the derivative
    right where a Jacobian passes through zero.

    **Arguments:**

    - `jac`: `(n, nv, *batch)`.
    """
    return jnp.any(jac != 0.0, axis=1) | (inverse_weight > 1e-15)


def columns(array, n: int) -> list:
    """Split axis 1 of an array `(m, n, *batch)`."""
    return [array[:, k] for k in range(n)]


# Friction cones.


class Pyramid(AbstractCost):
    """Pyramidal friction cones.

    - `weight`: weight of each edge; zero where there is no contact.
    - `adhesion`: see `OneSided`.
    """

    weight: Any
    adhesion: Any = None

    def piece(self, x: Residual) -> Any:
        return tuple(active(self.weight, edge) for edge in _edges(x))

    def force(self, piece: Any, x: Residual) -> Residual:
        edges = self.edge_forces(piece, x)
        ahead, behind = edges[0::2], edges[1::2]
        sides = (a - b for a, b in zip(ahead, behind, strict=True))
        return _net(self, (sum(edges[1:], edges[0]), *sides))

    def edge_forces(self, piece: Any, x: Residual) -> list:
        """Compute the forces of the edges, plus and minus in turn."""
        return [
            -(self.weight * one) * edge
            for one, edge in zip(piece, _edges(x), strict=True)
        ]

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
    - `adhesion`: see `OneSided`.
    """

    piecewise_quadratic: ClassVar[bool] = False
    weight: Any
    friction: tuple[Any, ...]
    mu: Any
    adhesion: Any = None

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
        return _net(self, tuple(forces))

    def model(self, piece: Any, x: Residual) -> Residual:
        # Without adhesion, the cost is homogeneous of degree two, so its gradient is its
        # Hessian times x.
        rows = _full(self.stiffness(piece))
        products = (sum(w * y for w, y in zip(row, x, strict=True)) for row in rows)
        return _net(self, tuple(-product for product in products))

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
