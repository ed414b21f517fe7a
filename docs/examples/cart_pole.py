"""A cart-pole swings up by iterative LQR, and stays up by model predictive control.

python docs/examples/cart_pole.py --out out/cart_pole.gif
"""

import argparse

import jax.numpy as jnp
import jax.random as jr

import eqsim
from eqsim import control
from eqsim.render import Camera, images, write_gif


MODEL = """
<mujoco model="cart-pole">
  <option timestep="0.02"/>
  <worldbody>
    <geom type="capsule" fromto="-2 0 0 2 0 0" size="0.01" contype="0" conaffinity="0"/>
    <body name="cart">
      <joint name="slide" type="slide" axis="1 0 0" range="-1.8 1.8" damping="0.05"/>
      <geom type="box" size="0.1 0.06 0.05" mass="1" contype="0" conaffinity="0"/>
      <body name="pole">
        <joint name="hinge" axis="0 1 0" damping="0.002"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.6" size="0.02" mass="0.2"
              contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slide" ctrlrange="-10 10"/></actuator>
</mujoco>"""
SYS, PIPELINE = eqsim.load_mjcf(MODEL), eqsim.Generalized()
UPRIGHT = PIPELINE.init(SYS, jnp.array([0.0, jnp.pi]))


def swing_up(horizon: int = 80) -> control.Plan:
    """Plan a swing-up from hanging: `horizon` control steps of 0.02 s."""
    cost = control.QuadraticCost(UPRIGHT, 0.01, 0.02, 2000.0)
    problem = control.ControlProblem((PIPELINE, SYS), cost, horizon)
    guess = jnp.sin(0.1 * jnp.arange(float(horizon)))[:, None]
    return control.ILQR(max_steps=200).solve(problem, PIPELINE.init(SYS), guess=guess)


def stay_up(length: int = 150, horizon: int = 25) -> eqsim.State:
    """Return the states of a cart whose pole is pushed every second: one
    iteration of iterative LQR per control step."""
    cost = control.QuadraticCost(UPRIGHT, jnp.array([1.0, 10.0, 0.1, 0.1]), 0.01, 50.0)
    problem = control.ControlProblem((PIPELINE, SYS), cost, horizon)
    policy = control.MPC(control.ILQR(max_steps=1), problem)
    memory = policy.init(UPRIGHT, jr.key(0))

    def step(carry, inputs):
        state, memory = carry
        number, hit = inputs
        hit = jnp.where(number % 50 == 25, hit, 0.0)
        state = PIPELINE.init(SYS, state.q, state.qd.at[1].add(hit))
        memory, action = policy.act(memory, state, None, jr.key(0))
        new = PIPELINE.step(SYS, state, action)
        return (new, memory), new

    hits = jr.uniform(jr.key(1), (length,), minval=-2.0, maxval=2.0)
    return eqsim.scan(step, (UPRIGHT, memory), (jnp.arange(length), hits))[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="name of a GIF file to write")
    out = parser.parse_args().out
    plan, after = swing_up(), stay_up()
    tilt = jnp.max(jnp.abs(after.q[:, 1] - jnp.pi))
    print("swing-up:", eqsim.RESULTS[plan.result] or f"solved, {plan.steps} iterations")
    print(f"largest tilt under pushes: {tilt:.2f} rad")
    if out:
        q = jnp.concatenate([plan.states.q, after.q])[::2]
        write_gif(out, images(SYS, q, Camera((0.0, 0.0, 0.0), 2.6, 90.0, -5.0)), 0.04)


if __name__ == "__main__":
    main()
