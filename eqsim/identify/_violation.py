r"""The violation of the laws of contact: contact-aware, without simulation."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import check_numbers
from ..collision import contact_plan
from ..constraint import Contact
from ..dynamics import crba
from ..kinematics import difference
from ..model import System
from ..model.arrays import as_array
from ..pipelines import Generalized
from ..pipelines.forward_dynamics import Settings
from ._contact_law import ContactLaw, explain
from ._control import AbstractInterpolation, Linear
from ._objective import (
    AbstractObjective,
    commands,
    Comparison,
    Given,
    Physics,
    Residuals,
)
from ._recording import Recording, uninterrupted
from ._unknowns import Model
from ._windows import Batch, Windows


_Q, _BEFORE, _AFTER, _TIMES = "middle q", "qd before", "qd after", "intervals"
_CHANNEL = "violation"


class Violation(AbstractObjective):
    r"""Violation of the laws of contact and friction, without simulation (ContactNets).

    Contact makes errors of a simulation discontinuous and chaotic. This objective compares
    neighboring samples instead: with the velocities $v$ and $v'$ before and after a sample,
    differences of coordinates over the intervals on both sides, its cost is the least
    violation over contact impulses $\lambda$ in the friction cones,

    $$\min_\lambda \tfrac12 |v' - v - \delta\,a_0 - M^{-1} J^\top \lambda|_M^2
    + \sum_i \Bigl(w_c \frac{|\phi'_i|}{h} + w_d\,\mu_i |v'_{t,i}|\Bigr) \lambda_{n,i}
    + w_d\,v'_{t,i} \cdot \lambda_{t,i}
    + \frac{w_p}{2} \sum_i m_i \Bigl(\frac{\min(\phi_i, 0)}{h}\Bigr)^2,$$

    with accelerations $a_0$ without contact, the mean $\delta$ of both intervals, the
    second interval $h$, distances $\phi$, $\phi' = \phi + h J_n v'$ one sample later,
    sliding velocities $v'_t$ and the masses $m$ that contacts move. In words: contact
    impulses explain the change of velocity; they act where bodies touch; friction
    of sliding contacts is on the cone and opposes the motion; bodies do not penetrate.
    The first two terms with $w_c = 1$ are the duality gap of rigid time stepping. The
    problem is convex, and its solution is differentiated implicitly.

    Residuals are the roots of the terms, divided by the mass of all links, in m/s; they
    have one common noise, so that weights act as given. The total mass of robots without
    actuators has no influence. Contacts are rigid: `solref` and `solimp` of shapes have no
    influence, and friction cones are elliptic. Other constraints, such as dry friction of
    joints, act as simulated. `Gain`, `Bias` and `Delay` of sensors have no influence; those
    of `"ctrl"` do.

    **Arguments:**

    - `complementarity`: weight $w_c$ of impulses at a distance.
    - `dissipation`: weight $w_d$ of friction that does not oppose the motion.
    - `penetration`: weight $w_p$ of penetration.
    - `samples`: samples of the recording in each interval. Noise of velocities is inversely
        proportional to it.
    - `reach`: distance up to which contact is considered, m, longer than the motion within
        an interval. Pairs with a plane of spheres, capsules, boxes and cylinders, and pairs
        of spheres and capsules, have no limit.
    - `control`: commands between their recorded times.

    ??? cite "References"
        Pfrommer, Halm, Posa, *ContactNets: Learning discontinuous contact dynamics with
        smooth, implicit representations*, CoRL 2020.

        Bianchini, Halm, Matni, Posa, *Generalization bounded implicit learning of nearly
        discontinuous functions*, L4DC 2022.
    """

    complementarity: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    dissipation: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    penetration: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    samples: int = eqx.field(static=True, default=1)
    reach: Float[Array, ""] = eqx.field(converter=as_array, default=0.05)
    control: AbstractInterpolation = Linear()

    def __check_init__(self):
        for name in ("complementarity", "dissipation", "penetration"):
            value, is_weight = vars(self)[name], lambda x: x >= 0
            check_numbers(f"Violation.{name}", value, is_weight, "not negative")
        is_count = lambda x: (x >= 1) & (x == np.floor(x))
        check_numbers(
            "Violation.samples", self.samples, is_count, "an integer of at least 1"
        )
        check_numbers("Violation.reach", self.reach, lambda x: x > 0, "positive")

    def compare(self, given: Given) -> Comparison:
        if given.windows.continuity is not None:
            raise ValueError(
                "`Violation` does not simulate, so windows cannot be connected. Leave "
                "out `continuity`."
            )
        if not isinstance(given.pipeline, Generalized):
            raise ValueError(
                "`Violation` needs the pipeline `Generalized`, got "
                f"{type(given.pipeline).__name__}."
            )
        if not contact_plan(given.sys).size:
            raise ValueError(
                "`Violation` compares contacts, but no shapes of this robot can touch. Use "
                "`Inverse` for robots without contact."
            )
        derived = [
            _transitions(given.sys, recording, given.windows, self.samples)
            for recording in given.recordings
        ]
        return Comparison(derived, (_Q, _BEFORE, _AFTER, _TIMES), {_CHANNEL: 1})

    def residuals(
        self,
        physics: Physics,
        model: Model,
        start: tuple[Float[Array, " nq"], Float[Array, " nv"]],
        window: Batch,
    ) -> Residuals:
        ctrl = commands(model, window, self.control, window.time)
        error = lambda *row: self._violation(physics, model.sys, *row)
        rows = (window.measured[name] for name in (_Q, _BEFORE, _AFTER, _TIMES))
        found = jax.vmap(error)(*rows, ctrl)
        return Residuals({_CHANNEL: jnp.where(window.mask[:, None], found, 0.0)}, start)

    def _violation(self, physics: Physics, sys: System, q, before, after, times, ctrl):
        """Compute residuals of one sample: dynamics, laws of contact, penetration."""
        pipeline, (interval, ahead) = physics.pipeline, times
        assert isinstance(pipeline, Generalized)
        measured = (after - before) / interval
        weights = self.complementarity, self.dissipation, self.reach
        weights = (x.astype(q.dtype) for x in weights)
        law = ContactLaw(measured, after, interval, ahead, *weights)
        others = (x for x in pipeline.constraints if not isinstance(x, Contact))
        settings = Settings((law, *others), pipeline.solver, None)
        found = explain(sys, settings, q, 0.5 * (before + after), ctrl)
        mass = jnp.sum(sys.links.mass)
        error = interval * (found.acceleration - measured)
        dynamics = jnp.linalg.cholesky(crba(sys, q)).T @ error
        # Squares are energies, and a constant: a root has no derivative at zero.
        energy = 2 * interval**2 * found.violation / mass
        laws = jnp.sqrt(jnp.maximum(energy, 0.0) + _SMALL**2)
        depth = jnp.sqrt(self.penetration.astype(q.dtype)) * found.penetration / ahead
        root = jnp.sqrt(mass)
        return jnp.concatenate([dynamics / root, laws, depth / root])


_SMALL = 1e-3
"""Velocity below which violations are rounded, m/s."""


def _transitions(
    sys: System, recording: Recording, windows: Windows, samples: int
) -> Recording:
    """Add velocities before and after each row, and leave out rows without both."""
    name = windows.channel
    if name not in recording.channels:
        raise ValueError(
            f"Recording {recording.name!r} has no channel {name!r} of coordinates, "
            f"which `Violation` needs. Its channels are {sorted(recording.channels)}. "
            "Select one with `Windows(channel=...)`."
        )
    q, time = recording.channels[name], recording.time
    if q.shape[1] != sys.nq:
        raise ValueError(
            f"Recording {recording.name!r}: channel {name!r} has {q.shape[1]} columns, but "
            f"the robot has {sys.nq} coordinates."
        )
    rows = _inner_rows(uninterrupted(time, windows.gap), samples)
    if len(rows) < 2:
        raise ValueError(
            f"Recording {recording.name!r} has no rows with {samples} samples on each "
            "side, from which `Violation` computes velocities. Choose a smaller "
            "`Violation.samples`, or a longer recording."
        )
    back, ahead = time[rows] - time[rows - samples], time[rows + samples] - time[rows]
    steps = jax.vmap(difference, (None, 0, 0))
    before = steps(sys, jnp.asarray(q[rows - samples]), jnp.asarray(q[rows]))
    after = steps(sys, jnp.asarray(q[rows]), jnp.asarray(q[rows + samples]))
    channels = {key: value[rows] for key, value in recording.channels.items()}
    channels |= {_Q: q[rows], _TIMES: np.stack([0.5 * (back + ahead), ahead], axis=1)}
    channels |= {
        _BEFORE: np.asarray(before) / back[:, None],
        _AFTER: np.asarray(after) / ahead[:, None],
    }
    name, run = recording.name, recording.run
    return Recording(time[rows], recording.ctrl[rows], channels, name, run)


def _inner_rows(parts: Sequence[slice], samples: int) -> np.ndarray:
    """Return the rows with neighbors on both sides."""
    kept = [np.arange(part.start + samples, part.stop - samples) for part in parts]
    return np.concatenate(kept)
