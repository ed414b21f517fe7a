import equinox as eqx
from jax import lax
from jaxtyping import Array, Float

from eqsim import AbstractPipeline, Generalized, State, System
from eqsim.kinematics import difference, integrate
from eqsim.model import Integrator
from eqsim.pipelines import Solved


class Richardson(AbstractPipeline):
    r"""Richardson extrapolation of another pipeline, which increases the order by one.

    A step of $h$ by a method of order $p$ gives $x_1$, two steps of $h/2$ give $x_2$,
    and

    $$x = x_2 + \frac{x_2 - x_1}{2^p - 1}$$

    has order $p + 1$, because the leading error terms of both are equal up to the
    factor $2^p$. Differences of coordinates are taken on their manifold.

    For `Generalized`, $p$ is 1 with Euler and 4 with Runge-Kutta. The error of the
    pipeline must decrease with the step. Accuracy does not improve while contacts or
    limits begin or end, because the motion is not smooth there. Activations are those
    of the two half steps.

    **Arguments:**

    - `base`: the other pipeline; by default `Generalized()`. It is called three times
        per step.

    ??? cite "Reference"
        Richardson, *The approximate arithmetical solution by finite differences of
        physical problems*, 1911. Hairer, Nørsett, Wanner, *Solving Ordinary Differential
        Equations I*, 1993, section II.4.
    """

    base: AbstractPipeline = eqx.field(default_factory=Generalized)

    def init(
        self,
        sys: System,
        q: Float[Array, " nq"] | None = None,
        qd: Float[Array, " nv"] | None = None,
    ) -> State:
        return self.base.init(sys, q, qd)

    def step(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> State:
        share = 1.0 / (2 ** (1 if sys.integrator is Integrator.EULER else 4) - 1)
        half = eqx.tree_at(lambda s: s.dt, sys, 0.5 * sys.dt)
        coarse = self.base.step(sys, state, ctrl, external)
        # A loop, so that the half step is compiled once.
        step = lambda now, _: (self.base.step(half, now, ctrl, external), None)
        fine, _ = lax.scan(step, state, length=2)
        change = share * difference(sys, coarse.q, fine.q)
        return State(
            integrate(sys, fine.q, change),
            fine.qd + share * (fine.qd - coarse.qd),
            fine.act,
            fine.aux,
        )

    def solve(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Solved:
        return self.base.solve(sys, state, ctrl, external)

    def advance(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> tuple[State, Solved]:
        new = self.step(sys, state, ctrl, external)
        return new, self.solve(sys, state, ctrl, external)
