"""One short use of each distribution, run where it was installed from a wheel.

python -I smoke.py NAME
"""

import pathlib
import subprocess
import sys


def command(*words: str) -> str:
    """Run the command `eqsim` and return its output."""
    program = pathlib.Path(sys.executable).with_name("eqsim")
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, f"eqsim {' '.join(words)}:\n{done.stdout}{done.stderr}"
    return done.stdout


def installed(module) -> None:
    """Assert that a module comes from this environment."""
    assert pathlib.Path(module.__file__).is_relative_to(sys.prefix), module.__file__


def eqsim() -> None:
    """Step, roll out and differentiate, in Python and on the command line."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import eqsim

    installed(eqsim)
    env = eqsim.make("point_mass")
    state, _ = eqx.filter_jit(env.reset)(jax.random.key(0))
    loss = lambda sys: env.pipeline.step(sys, state, jnp.ones(sys.nu)).qd[0]
    gradient = eqx.filter_jit(eqx.filter_grad(loss))(env.sys)
    assert jnp.all(gradient.links.mass < 0)
    assert "humanoid" in command("list")
    command("rollout", "hopper", "--num-envs", "2", "--length", "3", "--out", "hopper")
    import numpy as np

    assert np.load("hopper.npz")["rewards"].shape == (2, 3)


def eqsim_zoo() -> None:
    """Train, resume and evaluate, on the command line and in Python."""
    import eqsim_zoo as zoo

    installed(zoo)
    size = "--num-envs 16 --unroll-length 8 --episode-length 50 --evaluations 1"
    words = f"train ppo point_mass --steps 2e3 --pool-size 0 {size} --out run"
    command(*words.split())
    command("resume", "run", "--steps", "1e3")
    assert "return" in command("eval", "run", "--episodes", "4")
    assert zoo.load_run("run").counters.steps


def eqsim_example() -> None:
    """Find the names of a package of a third party, run them, and remove it."""
    import numpy as np

    import eqsim

    assert "cross_entropy" in eqsim.AGENTS.names()
    early = [name for name in sys.modules if name.startswith("eqsim_example")]
    assert not early, "imported before it is used"
    assert {"ball_beam", "richardson"} <= set(command("list").split())
    words = "rollout ball_beam --pipeline richardson --num-envs 2 --length 10 --out run"
    command(*words.split())
    assert np.load("run.npz")["rewards"].shape == (2, 10)
    command("plugins", "list")
    for name in ("ball_beam", "richardson", "cross_entropy"):
        command("plugins", "check", name)
    remove = [sys.executable, "-m", "pip", "uninstall", "--yes", "eqsim-example"]
    subprocess.run(remove, check=True, capture_output=True)
    assert "ball_beam" not in command("list").split()
    try:
        command("rollout", "ball_beam", "--length", "1", "--out", "gone")
    except AssertionError as error:
        assert "ball_beam" in str(error).partition(":\n")[2], error
    else:
        raise AssertionError("it still runs")


def eqsim_adapters() -> None:
    """Step an environment of dm_env."""
    import eqsim_adapters

    import eqsim

    installed(eqsim_adapters)
    env = eqsim_adapters.to_dm_env(eqsim.make("point_mass"))
    env.reset()
    assert env.step(env.action_spec().generate_value()).reward is not None


def eqsim_dmc() -> None:
    """Roll out a task of the control suite."""
    command("rollout", "dmc_cartpole_swingup", "--length", "3", "--out", "run")


def eqsim_evosax() -> None:
    """Train with an evolution strategy, on the command line."""
    size = "--population 8 --episode-length 20 --evaluations 1 --strategy PGPE"
    words = f"train evolution_strategy inverted_pendulum --steps 200 {size} --out run"
    command(*words.split())
    assert "return" in command("eval", "run", "--episodes", "2")


def eqsim_gymnasium() -> None:
    """Step a single environment and a vector environment."""
    import eqsim_gymnasium
    import gymnasium

    installed(eqsim_gymnasium)
    env = gymnasium.make("eqsim/PointMass-v0")
    env.reset(seed=0)
    env.step(env.action_space.sample())
    envs = gymnasium.make_vec("eqsim/PointMass-v0", num_envs=3)
    envs.reset(seed=0)
    assert envs.step(envs.action_space.sample())[1].shape == (3,)


def eqsim_mjx() -> None:
    """Step the pipeline."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import eqsim

    env = eqsim.make("inverted_pendulum", pipeline="mjx")
    state, _ = eqx.filter_jit(env.reset)(jax.random.key(0))
    state, timestep = eqx.filter_jit(env.step)(state, jnp.zeros(1))
    assert jnp.isfinite(timestep.reward)


def eqsim_locomotion() -> None:
    """Describe a robot, whose file no package has."""
    import eqsim_locomotion

    installed(eqsim_locomotion)
    try:
        eqsim_locomotion.load_robot(eqsim_locomotion.ROBOTS["go2"])
    except FileNotFoundError as error:
        assert "EQSIM_MENAGERIE" in str(error)


def eqsim_playground() -> None:
    """Make a task from the model files of MuJoCo Playground."""
    import eqsim

    # Other tasks also need files of MuJoCo Menagerie, which no package has.
    assert eqsim.make("playground_go1_joystick_flat").sys.nu == 12


def eqsim_torchrl() -> None:
    """Roll out an environment of TorchRL."""
    import eqsim_torchrl

    installed(eqsim_torchrl)
    env = eqsim_torchrl.EqsimEnv("point_mass", batch_size=[4], episode_length=10)
    env.set_seed(0)
    assert env.rollout(3)["next", "reward"].shape == (4, 3, 1)


SMOKE = {
    "eqsim": eqsim,
    "eqsim-zoo": eqsim_zoo,
    "eqsim-adapters": eqsim_adapters,
    "eqsim-dmc": eqsim_dmc,
    "eqsim-evosax": eqsim_evosax,
    "eqsim-example": eqsim_example,
    "eqsim-gymnasium": eqsim_gymnasium,
    "eqsim-locomotion": eqsim_locomotion,
    "eqsim-mjx": eqsim_mjx,
    "eqsim-playground": eqsim_playground,
    "eqsim-torchrl": eqsim_torchrl,
}


if __name__ == "__main__":
    SMOKE[sys.argv[1]]()
