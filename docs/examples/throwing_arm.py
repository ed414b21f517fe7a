"""Body and motion of an arm that throws a ball, designed together by exact gradients.

Adam increases the range by its gradient with respect to lengths of links and torques; the
cross-entropy method searches the same designs with as many simulations.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

import eqsim
from eqsim import control


LINK = '<inertial mass="0.5" pos="0 0 -0.25" diaginertia="0.012 0.012 0.0005"/>'
ARM = f"""
<mujoco model="arm">
  <option timestep="0.01" integrator="implicitfast"/>
  <default><joint axis="0 1 0" damping="0.1"/></default>
  <worldbody><body name="upper" pos="0 0 1"><joint name="shoulder"/>{LINK}
    <body name="fore" pos="0 0 -0.5"><joint name="elbow"/>{LINK}
      <body name="ball" pos="0 0 -0.5"><geom size="0.04" mass="0.3"/><site name="ball"/>
  </body></body></body></worldbody>
  <actuator><motor joint="shoulder" ctrlrange="-12 12"/>
    <motor joint="elbow" ctrlrange="-6 6"/></actuator>
</mujoco>"""
SYS, PIPELINE, STEPS = eqsim.load_mjcf(ARM), eqsim.Generalized(), 50


def built(design):
    """Return an arm of the lengths in the first row of a design, from 0.5 to 1.5 times those
    of the file. Mass is proportional to length."""
    scale = jnp.ones(3).at[:2].set(1.0 + 0.5 * jnp.tanh(design[0]))
    links, before = SYS.links, jnp.concatenate([jnp.ones(1), scale[:2]])
    pos, com = links.pos * before[:, None], links.com * scale[:, None]
    mass, inertia = links.mass * scale, links.inertia * scale[:, None] ** 3
    parts = lambda s: (s.links.pos, s.links.com, s.links.mass, s.links.inertia)
    return eqx.tree_at(parts, SYS, (pos, com, mass, inertia))


def throw(design):
    """Return the range of a throw, m, and the angles. Further rows of a design are torques,
    each for an equal share of the time until the ball is released."""
    sys, most = built(design), SYS.actuators.ctrl_range[:, 1]
    ctrl = most[None] * jnp.tanh(design[1:])
    ctrl = jnp.repeat(ctrl, STEPS // len(ctrl), axis=0)
    step = lambda state, u: (PIPELINE.step(sys, state, u), state.q)
    last, q = eqsim.scan(step, PIPELINE.init(sys), ctrl)
    pos = eqsim.kinematics.site_poses(sys, last.q).pos[0]
    vel = eqsim.kinematics.site_jacobian(sys, last.q, 0)[3:] @ last.qd
    fall = jnp.sqrt(vel[2] ** 2 + 2.0 * 9.81 * jnp.maximum(pos[2], 0.0))
    return pos[0] + vel[0] * (vel[2] + fall) / 9.81, q


def by_gradient(design, steps: int = 200):
    """Improve a design by Adam."""
    adam, cost = optax.adam(0.05), lambda design: -throw(design)[0]

    def improve(carry, _):
        design, state = carry
        change, state = adam.update(jax.grad(cost)(design), state)
        return (optax.apply_updates(design, change), state), None

    return eqsim.scan(improve, (design, adam.init(design)), length=steps)[0][0]


def by_sampling(design, steps: int = 200):
    """Improve a design by the cross-entropy method."""
    method = control.CEM(samples=20, elites=4, iterations=steps // 20, std=0.5)
    return method.plan(lambda design: -throw(design)[0], design, jr.key(0))[0]


if __name__ == "__main__":
    start = jnp.zeros((11, 2)).at[1:].set(0.1)
    designs = start, jax.jit(by_sampling)(start), jax.jit(by_gradient)(start)
    for name, design in zip(("start", "sampling", "gradient"), designs, strict=True):
        lengths = 0.5 + 0.25 * jnp.tanh(design[0])
        print(f"{name}: range {throw(design)[0]:.2f} m, links of {lengths} m")
