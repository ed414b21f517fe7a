"""Actuators and passive joint forces against MuJoCo C."""

import dataclasses

import actuators
import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose

import eqsim
from eqsim.actuators import Delay
from eqsim.dynamics import actuator_forces, actuator_states, passive_forces
from eqsim.io import load, load_mjcf, save, write_mjcf
from eqsim.io.mjcf._read_actuators import mujoco_activations
from eqsim.model import Integrator, State
from eqsim.testing import random_configuration, random_system


def compare(model, sys, state, ctrl):
    """Forces now, and the state after a step."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = state.q, state.qd
    data.ctrl[:] = ctrl
    actuators.set_activations(data, sys, state.act)
    mujoco.mj_forward(model, data)
    own = actuator_states(sys, state, ctrl)
    found = (
        *(own.length, own.velocity, own.force),
        actuator_forces(sys, state, ctrl),
        passive_forces(sys, state.q, state.qd),
    )
    expected = (
        *(data.actuator_length, data.actuator_velocity, data.actuator_force),
        *(data.qfrc_actuator, data.qfrc_passive),
    )
    names = ("length", "velocity", "force", "qfrc_actuator", "qfrc_passive")
    for name, a, b in zip(names, found, expected, strict=True):
        assert tree_allclose(a, jnp.asarray(b), rtol=1e-9, atol=1e-9), name
    new = eqsim.Generalized().step(sys, state, ctrl)
    places = mujoco_activations(sys.actuators)
    mujoco.mj_step(model, data)
    for name, a, b in (
        ("act", new.act[jnp.asarray(places, int)], data.act),
        ("qpos", new.q, data.qpos),
        ("qvel", new.qd, data.qvel),
    ):
        assert tree_allclose(a, jnp.asarray(b), rtol=1e-9, atol=1e-9), name


def draw(sys, seed, scale=0.5):
    """A state and controls, some of them out of their ranges."""
    rng = np.random.default_rng(seed)
    q, qd = random_configuration(seed, sys, scale)
    act, ctrl = scale * rng.normal(size=sys.na), rng.normal(size=sys.nu)
    # Servos have started in states of odd seeds.
    act[np.delete(np.arange(sys.na), mujoco_activations(sys.actuators))] = seed % 2
    return State(q, qd, jnp.asarray(act)), jnp.asarray(ctrl)


def check_random(seed):
    sys = random_system(
        seed,
        1 + seed % 4,
        num_roots=1,
        with_geoms=False,
        with_laws=True,
        integrator=(Integrator.EULER, Integrator.RK4)[seed % 3 == 0],
    )
    text = write_mjcf(sys)
    again = load_mjcf(text)
    assert jax.tree.structure(again.actuators) == jax.tree.structure(sys.actuators)
    for part in ("actuators", "joints"):
        a, b = (jax.tree.leaves(vars(s)[part]) for s in (again, sys))
        assert tree_allclose(a, b, rtol=1e-9, atol=1e-12)
    compare(mujoco.MjModel.from_xml_string(text), sys, *draw(sys, seed))


# Of RK4, seeds 0 and 3.
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.quick_cases("1")
def test_random_robots(seed):
    check_random(seed)


# Forces do not depend on the integrator. `test_actuator_gradients.py` has all files.
@pytest.mark.parametrize("integrator", ("Euler", "RK4"))
@pytest.mark.parametrize("name", actuators.FILES)
@pytest.mark.quick_cases("muscles-Euler", "pids-RK4", "discrete_pids-Euler")
def test_every_kind(name, integrator):
    text = actuators.text(name, integrator)
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    for seed in range(3):
        compare(model, sys, *draw(sys, seed, scale=float(seed)))


def test_states_at_which_laws_change():
    """Muscles at the ends of their lengths and speeds, and without activation."""
    text = actuators.text("muscles", "Euler")
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    for length in (-1.0, -0.8, -0.4, 0.0, 0.3, 0.6, 1.0, 2.0):
        for speed in (-9.0, -1.0, 0.0, 1.0, 9.0):
            act = jnp.zeros(sys.na)
            state = State(jnp.full(sys.nq, length), jnp.full(sys.nv, speed), act)
            compare(model, sys, state, jnp.full(sys.nu, 0.5))


@pytest.mark.parametrize("off", ("", "1", "all"))
@pytest.mark.quick_cases("1")
def test_switched_off(off):
    text = actuators.text("groups", "Euler", off)
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    compare(model, sys, *draw(sys, 1))
    compare(mujoco.MjModel.from_xml_string(write_mjcf(sys)), sys, *draw(sys, 2))


def test_adhesion():
    """Forces that need contacts come from the step."""
    text = actuators.ADHESION
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    data = mujoco.MjData(model)
    data.ctrl[:] = 1.0
    data.qvel[:] = 0.1
    state = eqsim.Generalized().init(sys)
    state = eqx.tree_at(lambda s: s.qd, state, jnp.full(sys.nv, 0.1))
    for _ in range(5):
        mujoco.mj_step(model, data)
        state = eqsim.Generalized().step(sys, state, jnp.ones(sys.nu))
    assert data.ncon and np.any(data.qfrc_actuator)
    assert tree_allclose(state.q, jnp.asarray(data.qpos), rtol=1e-9, atol=1e-9)
    assert tree_allclose(state.qd, jnp.asarray(data.qvel), rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match="contacts of a link"):
        actuator_forces(sys, state, jnp.ones(sys.nu))


def test_singular_inertia_is_refused():
    """MuJoCo's `general_dyntype.xml` slides one body along four axes."""
    slides = "".join(
        f'<joint type="slide" axis="{axis}"/>'
        for axis in ("1 0 0", "0 1 0", "0 0 1", "1 1 0")
    )
    body = f'<body>{slides}<geom type="box" size="1 1 1" mass="1"/></body>'
    with pytest.raises(ValueError, match="linearly dependent"):
        load_mjcf(f"<mujoco><worldbody>{body}</worldbody></mujoco>")
    turned = body.replace("/>", ' armature=".1"/>', 4)
    load_mjcf(f"<mujoco><worldbody>{turned}</worldbody></mujoco>")


MUSCLE = """
<mujoco><worldbody><site name="a" pos="0 0 1"/>
  <body><joint name="j" axis="0 1 0"/><geom size=".1" pos=".3 0 0"/>
    <site name="b" pos=".5 0 .2"/></body></worldbody>
<tendon><spatial name="t" armature=".7"><site site="a"/><site site="b"/></spatial></tendon>
<actuator><muscle joint="j" lengthrange="-1 1" scale="30"/></actuator></mujoco>"""


def test_strength_of_muscles_with_heavy_tendons():
    """The armature of tendons counts for the strength that follows from the inertia."""
    model, sys = mujoco.MjModel.from_xml_string(MUSCLE), load_mjcf(MUSCLE)
    compare(model, sys, *draw(sys, 1))


LIMITED_CURRENT = """
<mujoco><option integrator="implicitfast"/><worldbody>
  <body><joint name="j" axis="0 1 0"/><geom size=".1" pos=".1 0 0"/></body></worldbody>
<actuator><dcmotor joint="j" motorconst="1" resistance="2" inductance="0 .02"/></actuator>
</mujoco>"""


@pytest.mark.parametrize("rate", (0.0, 20.0))
@pytest.mark.quick_cases("0.0")
def test_current_at_its_largest_rate_does_not_damp(rate):
    """Implicit integrators then see no change of the current with the velocity."""
    model = mujoco.MjModel.from_xml_string(LIMITED_CURRENT)
    model.actuator_dynprm[:, 1] = rate
    sys = load_mjcf(model)
    assert float(sys.actuators.motors.max_current_rate[0]) == rate
    state = State(jnp.array([0.2]), jnp.array([1.5]), jnp.array([0.1]))
    compare(model, sys, state, jnp.array([4.0]))


SATURATED = """
<mujoco><option integrator="implicit"/><worldbody>
  <body><joint name="j" type="ball"/>
    <geom type="box" size=".1 .2 .15" pos=".1 .05 0"/></body></worldbody>
<actuator><orientation joint="j" kp="3" kv=".5" input="quat" forcerange="0 .7"/></actuator>
</mujoco>"""


def test_saturated_servo_of_orientation_does_not_damp():
    """MuJoCo decides by the norm of a torque that it has scaled to the bound, which
    rounding puts below the bound in some states: lift it above."""
    model, sys = mujoco.MjModel.from_xml_string(SATURATED), load_mjcf(SATURATED)
    step, below = jax.jit(eqsim.Generalized().step), 0
    for seed in range(20):
        (state, ctrl), data = draw(sys, seed), mujoco.MjData(model)
        data.qpos[:], data.qvel[:], data.ctrl[:] = state.q, state.qd, ctrl
        mujoco.mj_forward(model, data)
        assert np.isclose(np.linalg.norm(data.actuator_force), 0.7, rtol=1e-12)
        below += np.linalg.norm(data.actuator_force) < 0.7
        data.actuator_force[:] *= 1.0 + 1e-14
        mujoco.mj_implicit(model, data)
        new = step(sys, state, ctrl)
        assert tree_allclose(new.qd, jnp.asarray(data.qvel), rtol=1e-9, atol=1e-9)
    assert 0 < below < 20


# The plugin `mujoco.pid`: every setting with and without the others, and every dynamics.
SETTINGS = {"kp": 8, "ki": 20, "kd": 0.3, "imax": 0.4, "slewmax": 1.5}
WITHOUT = {
    **{
        f"no {key}": {k: x for k, x in SETTINGS.items() if k != key} for key in SETTINGS
    },
    **{"all": SETTINGS, "kp": {"kp": 8}, "negative ki": {"kp": 8, "ki": -4}},
}
DYNAMICS = {
    "none": "",
    "integrator": 'dyntype="integrator" actrange="-.6 .9" actearly="true"',
    "filter": 'dyntype="filter" dynprm=".05"',
    "filterexact": 'dyntype="filterexact" dynprm=".05" actearly="true"',
}
PENDULUM = """
<mujoco><option timestep=".005" integrator="{integrator}"><flag contact="disable"/></option>
<extension><plugin plugin="mujoco.pid"/></extension>
<worldbody><body><joint name="one" axis="0 1 0" damping=".1"/>
  <geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/>
  <body pos=".3 0 0"><joint name="two" axis="0 1 0" damping=".1"/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".04"/></body></body></worldbody>
<actuator>{actuators}<motor joint="two"/>
  <pid joint="two" kp="1" ki="1" imax=".1" slewmax="2"/></actuator>{more}</mujoco>"""


def pendulum(settings, words="", integrator="Euler", more=""):
    words += ' ctrlrange="-.8 .8" forcerange="-6 6"'
    servos = actuators.discrete_pid("one", words, **settings)
    servos += actuators.discrete_pid("two", kp=2, kd=0.1)
    return PENDULUM.format(integrator=integrator, actuators=servos, more=more)


def follow(text, sys=None, steps=200):
    """Compare motions from the start, where the setpoint jumps; returns MuJoCo's `act`."""
    model = mujoco.MjModel.from_xml_string(text)
    sys = load_mjcf(text) if sys is None else sys
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    pipeline, acts = eqsim.Generalized(), []
    state, step = pipeline.init(sys), jax.jit(pipeline.step)
    places = mujoco_activations(sys.actuators)
    for number in range(steps):
        if number % 25 == 0:
            data.ctrl[:] = rng.normal(size=model.nu)
        mujoco.mj_step(model, data)
        state = step(sys, state, jnp.asarray(data.ctrl))
        own = jnp.concatenate([state.q, state.qd, state.act[jnp.asarray(places)]])
        expected = np.concatenate([data.qpos, data.qvel, data.act])
        assert np.max(np.abs(own - expected)) < 1e-10, number
        acts.append(data.act.copy())
    return np.array(acts)


@pytest.mark.parametrize("dynamics", DYNAMICS)
@pytest.mark.parametrize("case", WITHOUT)
@pytest.mark.quick_cases("all-none", "no kd-filterexact")
def test_discrete_pids_follow_mujoco(case, dynamics):
    acts = follow(pendulum(WITHOUT[case], DYNAMICS[dynamics]))
    if case == "all":
        bound = SETTINGS["imax"] / SETTINGS["ki"]
        assert np.sum(np.abs(acts[:, 0]) > 0.999 * bound) > 20
        rates = np.abs(np.diff(acts[:, 1])) / 0.005
        assert dynamics != "none" or np.isclose(np.max(rates), SETTINGS["slewmax"])


@pytest.mark.parametrize("integrator", ("RK4", "implicit", "implicitfast"))
@pytest.mark.quick_cases("RK4")
def test_discrete_pids_with_other_integrators(integrator):
    """Stages of the first step of RK4 are after the start; implicit integrators leave out
    the derivative of the force, as MuJoCo does."""
    follow(pendulum(SETTINGS, integrator=integrator))


def test_discrete_pids_with_delay_and_without_clipping():
    """The plugin ignores the delay of a control that it reads itself, but not that of an
    activation, and always clips this control."""
    delay = 'delay=".02" nsample="6"'
    text = pendulum(SETTINGS, delay).replace("<flag ", '<flag clampctrl="disable" ')
    sys = load_mjcf(text)
    assert not sys.actuator_models and "without delay" in sys.notes[0]
    follow(text)
    filtered = pendulum(SETTINGS, f"{DYNAMICS['filter']} {delay}")
    follow(filtered.replace("<flag ", '<flag clampctrl="disable" '))
    later = sys.with_actuator_model(sys.actuators.names[0], Delay(0.02, 6))
    with pytest.raises(ValueError, match="'mujoco.pid' ignores without activation"):
        write_mjcf(later)


def test_discrete_pids_that_mujoco_moves_otherwise_are_not_written():
    """`load_mjcf` refuses such files."""
    sys = load_mjcf(pendulum(SETTINGS, DYNAMICS["filter"]))
    fields = vars(sys.actuators)
    off = {"enabled": (False,) * len(sys.actuators.names)}
    twice = {"inputs": (sys.actuators.inputs[0] * 2, *sys.actuators.inputs[1:])}
    for change, message in ((off, "is disabled"), (twice, "listed after actuators")):
        servos = type(sys.actuators)(**{**fields, **change})
        with pytest.raises(ValueError, match=message):
            write_mjcf(dataclasses.replace(sys, actuators=servos))


@pytest.mark.parametrize("time", (0.0, 0.3))
def test_discrete_pids_are_written_and_saved(time, tmp_path):
    """Setpoints of keyframes count after the start only."""
    acts = " ".join(map(str, np.arange(5) / 10))
    keys = (
        f'<keyframe><key name="k" time="{time}" act="{acts}" qpos=".1 .2"/></keyframe>'
    )
    text = pendulum(SETTINGS, DYNAMICS["filter"], more=keys)
    sys = load_mjcf(text)
    written = write_mjcf(sys)
    save(tmp_path / "robot.eqx", sys)
    for again in (load_mjcf(written), load(tmp_path / "robot.eqx")):
        assert tree_allclose(again, sys, rtol=1e-15, atol=0.0)
    compare(mujoco.MjModel.from_xml_string(written), sys, *draw(sys, 1))
    model, pipeline = mujoco.MjModel.from_xml_string(written), eqsim.Generalized()
    data, state = mujoco.MjData(model), pipeline.init_keyframe(sys, "k")
    mujoco.mj_resetDataKeyframe(model, data, 0)
    assert (data.time > 0) == (time > 0)
    data.ctrl[:] = 0.7
    mujoco.mj_step(model, data)
    state = pipeline.step(sys, state, jnp.full(sys.nu, 0.7))
    assert tree_allclose(state.qd, jnp.asarray(data.qvel), rtol=1e-12, atol=1e-12)


def test_batches_of_discrete_pids():
    """Each robot of a batch has its own gains, and its own first step."""
    sys = load_mjcf(pendulum(SETTINGS, DYNAMICS["filter"]))
    state, ctrl = draw(sys, 1)
    mark = [x.value for x in sys.actuators.states[0]].index("started")
    first = eqx.tree_at(lambda s: s.act, state, state.act.at[mark].set(0.0))
    states = jax.tree.map(lambda *x: jnp.stack(x), state, first)
    robots = jax.tree.map(lambda x: jnp.stack([x, x]), sys.without_pattern())
    where = lambda s: (
        s.actuators.discrete_pids.proportional,
        s.actuators.discrete_pids.integral,
    )
    robots = eqx.tree_at(
        where, robots, [x * jnp.array([[1.0], [0.5]]) for x in where(robots)]
    )
    step = eqsim.Generalized().step
    found = jax.vmap(step)(robots, states, jnp.stack([ctrl, ctrl]))
    for i in range(2):
        pick = lambda tree: jax.tree.map(lambda x: x[i], tree)
        assert tree_allclose(
            pick(found), step(pick(robots), pick(states), ctrl), rtol=1e-12, atol=1e-12
        )


CLAMPS = {
    "free": (0.001, 0.1, 0.105),
    "integral at its bound": (0.0199, 0.1, 0.105),
    "integral at its lower bound": (-0.0199, 0.02, 0.015),
    "setpoint too fast": (0.001, 0.1, 0.6),
    "both": (0.0199, 0.4, 0.9),
}


@pytest.mark.parametrize("started", (0.0, 1.0))
@pytest.mark.parametrize("case", CLAMPS)
@pytest.mark.quick_cases("free-1.0", "both-1.0", "both-0.0")
def test_derivatives_of_discrete_pids(case, started):
    """On both sides of each bound, and in the first step."""
    sys = load_mjcf(pendulum(SETTINGS))
    integral, before, target = CLAMPS[case]
    q, qd = jnp.array([0.05, -0.1]), jnp.array([0.3, 0.2])
    act = jnp.array([integral, before, started, 0.0, 0.01])
    where = lambda s: (s.actuators.discrete_pids, s.dt)
    pids, dt = where(sys)
    inputs = q, qd, act[:2], jnp.array([target, 0.2, 0.1, 0.3, 0.2])
    # The other servo has neither bound nor limited rate.
    names = ("proportional", "integral", "derivative", "max_integral", "max_slew")
    numbers = [getattr(pids, name)[0] for name in names]

    def step(inputs, numbers, dt):
        q, qd, own, ctrl = inputs
        new = {k: getattr(pids, k).at[0].set(x) for k, x in zip(names, numbers)}
        robot = eqx.tree_at(where, sys, (dataclasses.replace(pids, **new), dt))
        state = State(q, qd, act.at[:2].set(own))
        new = eqsim.Generalized().step(robot, state, ctrl)
        return new.qd, new.act

    check_gradients(step, inputs, numbers, dt)
    by_act = jax.jacobian(lambda x: step((q, qd, x, inputs[3]), numbers, dt)[0][0])
    slope = by_act(act[:2])
    assert (slope[0] == 0.0) == ("bound" in case or case == "both")
    assert (slope[1] != 0.0) == (started > 0 and case in ("setpoint too fast", "both"))
