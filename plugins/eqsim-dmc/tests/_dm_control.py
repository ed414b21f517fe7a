"""dm_control's tasks with a converged solver, evaluated at the current state, and
eqsim's tasks, started in their states."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
from dm_control.mujoco.wrapper.mjbindings import sizes
from eqsim_dmc import RandomGains, RandomSprings

import eqsim


def _fit_tables() -> None:
    """Remove entries of dm_control's tables of array sizes that this MuJoCo version
    does not have.

    dm_control 1.0.50 lists arrays of flexible bodies that MuJoCo 4.0 has removed, and
    cannot load models. Nothing else is changed.
    """
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    for name, struct in (("mjmodel", model), ("mjdata", mujoco.MjData(model))):
        table = sizes.array_sizes[name]
        for field in set(table) - set(dir(struct)):
            del table[field]


_fit_tables()

from dm_control import suite


TASKS = {
    "dmc_acrobot_swingup": ("acrobot", "swingup"),
    "dmc_acrobot_swingup_sparse": ("acrobot", "swingup_sparse"),
    "dmc_ball_in_cup_catch": ("ball_in_cup", "catch"),
    "dmc_cartpole_balance": ("cartpole", "balance"),
    "dmc_cartpole_balance_sparse": ("cartpole", "balance_sparse"),
    "dmc_cartpole_swingup": ("cartpole", "swingup"),
    "dmc_cartpole_swingup_sparse": ("cartpole", "swingup_sparse"),
    "dmc_cheetah_run": ("cheetah", "run"),
    "dmc_finger_spin": ("finger", "spin"),
    "dmc_finger_turn_easy": ("finger", "turn_easy"),
    "dmc_finger_turn_hard": ("finger", "turn_hard"),
    "dmc_fish_swim": ("fish", "swim"),
    "dmc_fish_upright": ("fish", "upright"),
    "dmc_hopper_hop": ("hopper", "hop"),
    "dmc_hopper_stand": ("hopper", "stand"),
    "dmc_humanoid_CMU_run": ("humanoid_CMU", "run"),
    "dmc_humanoid_CMU_stand": ("humanoid_CMU", "stand"),
    "dmc_humanoid_CMU_walk": ("humanoid_CMU", "walk"),
    "dmc_humanoid_run": ("humanoid", "run"),
    "dmc_humanoid_run_pure_state": ("humanoid", "run_pure_state"),
    "dmc_humanoid_stand": ("humanoid", "stand"),
    "dmc_humanoid_walk": ("humanoid", "walk"),
    "dmc_lqr_lqr_2_1": ("lqr", "lqr_2_1"),
    "dmc_lqr_lqr_6_2": ("lqr", "lqr_6_2"),
    "dmc_manipulator_bring_ball": ("manipulator", "bring_ball"),
    "dmc_manipulator_bring_peg": ("manipulator", "bring_peg"),
    "dmc_manipulator_insert_ball": ("manipulator", "insert_ball"),
    "dmc_manipulator_insert_peg": ("manipulator", "insert_peg"),
    "dmc_pendulum_swingup": ("pendulum", "swingup"),
    "dmc_point_mass_easy": ("point_mass", "easy"),
    "dmc_point_mass_hard": ("point_mass", "hard"),
    "dmc_quadruped_escape": ("quadruped", "escape"),
    "dmc_quadruped_fetch": ("quadruped", "fetch"),
    "dmc_quadruped_run": ("quadruped", "run"),
    "dmc_quadruped_walk": ("quadruped", "walk"),
    "dmc_reacher_easy": ("reacher", "easy"),
    "dmc_reacher_hard": ("reacher", "hard"),
    "dmc_stacker_stack_2": ("stacker", "stack_2"),
    "dmc_stacker_stack_4": ("stacker", "stack_4"),
    "dmc_swimmer_swimmer6": ("swimmer", "swimmer6"),
    "dmc_swimmer_swimmer15": ("swimmer", "swimmer15"),
    "dmc_walker_run": ("walker", "run"),
    "dmc_walker_stand": ("walker", "stand"),
    "dmc_walker_walk": ("walker", "walk"),
}
# Arrays of MuJoCo's model whose values differ between episodes, or between environments.
DRAWN = {
    "dmc_finger_turn_easy": ("site_pos",),
    "dmc_finger_turn_hard": ("site_pos",),
    "dmc_fish_swim": ("geom_pos",),
    "dmc_lqr_lqr_2_1": ("jnt_stiffness",),
    "dmc_lqr_lqr_6_2": ("jnt_stiffness",),
    "dmc_manipulator_bring_ball": ("body_pos", "body_quat"),
    "dmc_manipulator_bring_peg": ("body_pos", "body_quat"),
    "dmc_manipulator_insert_ball": ("body_pos", "body_quat"),
    "dmc_manipulator_insert_peg": ("body_pos", "body_quat"),
    "dmc_quadruped_escape": ("hfield_data",),
    "dmc_reacher_easy": ("geom_pos",),
    "dmc_reacher_hard": ("geom_pos",),
    "dmc_stacker_stack_2": ("body_pos",),
    "dmc_stacker_stack_4": ("body_pos",),
    "dmc_swimmer_swimmer6": ("geom_pos",),
    "dmc_swimmer_swimmer15": ("geom_pos",),
}


class Start(NamedTuple):
    """A state. `numbers`: other values that differ between episodes, such as a target
    or gains, in the order of `eqsim.DomainRandomization.context`."""

    q: Any
    qd: Any
    act: Any
    numbers: Any


class Theirs:
    """A task of dm_control.

    **Arguments:**

    - `name`: name of eqsim's task.
    - `seed`: seed of its random numbers.
    - `refreshed`: true if the solver converges, and MuJoCo evaluates positions and
        forces at the new state after each step. By default, forces are those of the
        previous time step.
    """

    def __init__(self, name: str, seed: int = 0, refreshed: bool = True):
        self.name, (self.domain, task) = name, TASKS[name]
        self.env = suite.load(self.domain, task, task_kwargs={"random": seed})
        self.task, self.physics = self.env.task, self.env.physics
        # `quadruped_escape` copies its terrain to an OpenGL context, which it creates.
        type(self.physics).contexts = ()
        self.model, self.data = self.physics.model.ptr, self.physics.data.ptr
        self.refreshed = refreshed
        ratio = self.env.control_timestep() / self.physics.timestep()
        self.substeps = round(ratio)
        self.numbers = self._numbers()
        if refreshed:
            _converge(self.model)

    def reset(self) -> dict[str, np.ndarray]:
        """Draw an initial state."""
        self.env.reset()
        self.numbers = self._numbers()
        return self.report()

    def place(self, q, qd, act=()) -> dict[str, np.ndarray]:
        """Set a given state of the same episode."""
        self.data.qpos[:], self.data.qvel[:] = q, qd
        self.data.act[:] = act
        self.data.ctrl[:] = 0.0
        mujoco.mj_forward(self.model, self.data)
        return self.report()

    def step(self, action) -> tuple[dict[str, np.ndarray], float]:
        """Take a step; return observation and reward."""
        self.task.before_step(action, self.physics)
        self.physics.step(self.substeps)
        return self.report(), float(self.task.get_reward(self.physics))

    def report(self) -> dict[str, np.ndarray]:
        """Return the observation, part by part."""
        if self.refreshed:
            mujoco.mj_forward(self.model, self.data)
        parts = self.task.get_observation(self.physics)
        return {name: np.array(part, float) for name, part in parts.items()}

    def state(self) -> Start:
        """Return the current state."""
        data = self.data
        return Start(data.qpos.copy(), data.qvel.copy(), data.act.copy(), self.numbers)

    def _numbers(self) -> np.ndarray:
        """Return other values that differ between episodes; see `Start`."""
        if self.domain == "point_mass":
            # Coefficients of the joints in the tendon of each motor.
            return np.array(self.model.wrap_prm).reshape(2, 2)
        drawn = [self._drawn(name) for name in DRAWN.get(self.name, ())]
        return np.concatenate([*drawn, np.zeros(0)])

    def _drawn(self, name: str) -> np.ndarray:
        """Return an array of the model; for bodies without the world, for height fields
        in meters."""
        values = np.array(vars(type(self.model))[name].__get__(self.model), float)
        if name == "hfield_data":
            return values * self.model.hfield_size[0, 2]
        return values[int(name.startswith("body")) :].ravel()

    @property
    def action_range(self) -> np.ndarray:
        """Return lowest and highest actions, `(nu, 2)`; infinite without a limit."""
        spec = self.env.action_spec()
        both = np.stack([spec.minimum, spec.maximum], axis=1)
        return np.where(np.abs(both) < mujoco.mjMAXVAL, both, np.sign(both) * np.inf)

    def draw_action(self, rng: np.random.Generator) -> np.ndarray:
        """Draw an action uniformly from the full range, or from [-1, 1] without a
        limit."""
        both = self.action_range
        both = np.where(np.isfinite(both), both, np.sign(both))
        return rng.uniform(both[:, 0], both[:, 1])


def flat(parts: dict[str, np.ndarray]) -> np.ndarray:
    """Flatten an observation to one vector."""
    return np.concatenate([np.ravel(part) for part in parts.values()])


def ours(name: str) -> eqsim.AbstractEnv:
    """Create a task of eqsim. The suite draws the springs of `lqr` for each
    environment; here they are drawn for each episode, so that several fit into one
    program."""
    env = eqsim.make(name)
    if name.startswith("dmc_lqr"):
        return eqsim.DomainRandomization(env, RandomSprings())
    return env


def begin(env: eqsim.AbstractEnv, start: Any) -> tuple[Any, eqsim.Timestep]:
    """Start an episode of eqsim in a given state."""
    options = {"q": start.q, "qd": start.qd}
    if isinstance(env, eqsim.DomainRandomization):
        options["context"] = start.numbers
    state, timestep = env.reset(jr.key(0), options)
    if env.sys.na:
        robot = eqx.tree_at(lambda s: s.act, env.physics(state), start.act)
        if isinstance(env, eqsim.DomainRandomization):
            task = eqx.tree_at(lambda e: e.sys, env.env, env.robot(state))
            robot, timestep = task.begin(robot)
            state = eqx.tree_at(lambda s: s.inner, state, robot)
        else:
            state, timestep = env.begin(robot)
    if isinstance(env, RandomGains):
        gains = jnp.asarray(start.numbers, state.gains.dtype)
        state = type(state)(state.inner, gains)
    return state, timestep


def stacked(starts: list[Start]) -> Start:
    """Stack several states along a first axis."""
    return Start(*(jnp.asarray(np.stack(x)) for x in zip(*starts)))


def programs(env: eqsim.AbstractEnv):
    """Return `begin` and `step` of eqsim for a batch, compiled quickly."""
    options = None
    if jax.default_backend() == "cpu":
        # With fewer optimizations, because they run only a few times.
        options = {"xla_backend_optimization_level": 0}
        if jax.__version_info__ < (0, 11):  # refused by jaxlib 0.12
            options["xla_cpu_use_fusion_emitters"] = False
    first = jax.jit(jax.vmap(lambda start: begin(env, start)), compiler_options=options)
    step = lambda state, action: env.step(state, action)
    return first, jax.jit(jax.vmap(step), compiler_options=options)


def _converge(model: mujoco.MjModel) -> None:
    """Make MuJoCo solve each step, and detect contacts, as exactly as possible."""
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.iterations, model.opt.tolerance = 200, 0.0
    model.opt.ls_iterations, model.opt.ls_tolerance = 200, 1e-12
    # For ellipsoids and cylinders.
    model.opt.ccd_iterations, model.opt.ccd_tolerance = 1000, 1e-15
