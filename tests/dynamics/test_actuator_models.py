"""Models attached to actuators: their laws, MuJoCo's delays, and how they are attached."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
from helpers import examples, tree_allclose
from hypothesis import given, settings, strategies as st

import eqsim
from eqsim.actuators import (
    AbstractForceModel,
    ActuatorInputs,
    Backlash,
    ControlFilter,
    Delay,
    GRUActuator,
    MLPActuator,
    OutputTorque,
    PDServo,
    StribeckFriction,
    TorqueLag,
    TorqueSpeedLimit,
)
from eqsim.io import load_mjcf, write_mjcf
from eqsim.testing import check_actuator_model, check_gradients, ConformanceError


ARM = """
<mujoco><option timestep=".002" integrator="{integrator}"/>
<worldbody><body><joint name="one" axis="0 1 0" damping=".1"/>
  <geom type="capsule" size=".03" fromto="0 0 0 0 0 -.3" mass="1"/>
  <body pos="0 0 -.3"><joint name="two" axis="0 1 0" damping=".1"/>
    <geom type="capsule" size=".03" fromto="0 0 0 0 0 -.3" mass="1"/></body></body>
</worldbody>
<actuator>{actuators}</actuator>
<keyframe><key name="bent" qpos=".1 .2"/></keyframe></mujoco>"""
MOTORS = '<motor name="one" joint="one"/><motor name="two" joint="two"/>'
DELAYED = """
<position name="linear" joint="one" kp="10" kv="1" delay=".0071" nsample="5"
  interp="linear" ctrlrange="-.5 .5"/>
<general name="filter" joint="one" dyntype="filter" dynprm=".02" delay=".003" nsample="4"
  interp="cubic"/>
<motor name="hold" joint="two" delay=".005" nsample="3" interp="zoh"/>
<motor name="beyond" joint="two" delay=".02" nsample="3" interp="cubic"/>
<motor name="short" joint="two" delay=".0005" nsample="3" interp="linear"/>
<motor name="spline" joint="two" delay=".0071" nsample="9" interp="cubic"/>
"""
NETWORK = dict(features=("error", "velocity"), scales=(1.0, 5.0), key=jr.key(0))


def arm(actuators=MOTORS, integrator="Euler"):
    return load_mjcf(ARM.format(actuators=actuators, integrator=integrator))


def inputs(control=0.0, force=0.0, length=0.0, velocity=0.0, dt=0.01):
    return ActuatorInputs(*map(jnp.asarray, (control, force, length, velocity, dt)))


def run(model, controls, dt=0.01):
    """The outputs of a control model for a sequence of controls."""
    state, found = jnp.zeros(model.num_states), []
    for control in controls:
        state, out = model(state, inputs(control=float(control), dt=dt))
        found.append(float(out))
    return np.array(found)


# Delays.


@pytest.mark.parametrize("integrator", ("Euler", "implicitfast", "implicit", "RK4"))
@pytest.mark.quick_cases("implicitfast", "RK4")
def test_delays_are_those_of_mujoco(integrator):
    text = ARM.format(actuators=DELAYED, integrator=integrator)
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    data, pipeline = mujoco.MjData(model), eqsim.Generalized()
    state, step = pipeline.init(sys), eqx.filter_jit(pipeline.step)
    rng = np.random.default_rng(0)
    for _ in range(40):
        ctrl = rng.uniform(-1.0, 1.0, model.nu)
        data.ctrl[:] = ctrl
        mujoco.mj_step(model, data)
        state = step(sys, state, jnp.asarray(ctrl))
        assert tree_allclose(state.q, data.qpos, rtol=1e-11, atol=1e-11)
        assert tree_allclose(state.qd, data.qvel, rtol=1e-11, atol=1e-11)
        assert tree_allclose(state.act[: model.na], data.act, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("integrator", ("Euler", "RK4"))
def test_delays_are_written(integrator):
    sys = arm(DELAYED, integrator)
    again = load_mjcf(write_mjcf(sys))
    assert tree_allclose(again, sys, rtol=1e-12, atol=1e-12)
    assert "hold: joint two, gear (1), Delay" in str(sys)


def test_other_models_are_not_written():
    sys = arm().with_actuator_model("one", ControlFilter(0.1))
    with pytest.raises(ValueError, match="'one' has ControlFilter.*without_actuator"):
        write_mjcf(sys)
    short = arm().with_actuator_model("one", Delay(0.001, 2))
    with pytest.raises(ValueError, match="at least one time step"):
        write_mjcf(short)


@given(delay=st.floats(0.0, 0.06), slope=st.floats(-3.0, 3.0))
@settings(max_examples=examples(10))
def test_delay_of_a_ramp(delay, slope):
    """A ramp is delayed exactly once the list is full."""
    times = 0.01 * np.arange(20)
    for interpolation in ("linear", "cubic"):
        found = run(Delay(delay, 6, interpolation), slope * times)
        # Splines have no slope at the ends of the list.
        inside = 0.02 <= delay <= 0.05
        if interpolation == "linear" or inside:
            assert found[8:] == pytest.approx(slope * (times[8:] - delay), abs=1e-6)


@pytest.mark.parametrize("interpolation", ("linear", "cubic"))
def test_stages_read_controls_at_their_times(interpolation):
    """Delays become shorter by the time since the start of the step, to one time step; those
    below it stay."""
    state, given = jnp.array([0.4, -0.2, 0.1]), inputs(control=0.7)

    @jax.jit
    @jax.vmap
    def out(delay, elapsed):
        model = Delay(delay, 3, interpolation)
        return model(state, given._replace(elapsed=elapsed))[1]

    delay, elapsed = map(
        np.ravel, np.meshgrid((0.006, 0.013, 0.023, 0.04), (0.0, 0.005, 0.01))
    )
    age = np.where(delay < 0.01, delay, np.maximum(delay - elapsed, 0.01))
    found, expected = out(delay, elapsed), out(age, 0.0 * elapsed)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    kinks = np.isclose(delay - elapsed, 0.01) | np.isclose(delay - elapsed, 0.03)
    smooth, later = (jnp.asarray(x[~kinks]) for x in (delay, elapsed))
    assert len(smooth) > 8
    check_gradients(lambda x: out(x, later), smooth)


def test_derivative_by_a_delay_is_the_rate():
    """Also at a whole number of time steps, and at the end of the list."""

    def out(delay):
        state = jnp.array([0.4, 0.2, 0.0])
        return Delay(delay, 3)(state, inputs(control=0.6))[1]

    slopes = jax.jit(jax.vmap(jax.grad(out)))(jnp.array([0.013, 0.01, 0.02, 0.03]))
    np.testing.assert_allclose(slopes, -0.2 / 0.01)


def test_splines_are_smooth_at_controls():
    def out(delay):
        state = jnp.array([0.4, 0.1, 0.7, 0.2])
        return Delay(delay, 4, "cubic")(state, inputs(control=0.6))[1]

    delay, every = np.array([0.02, 0.025, 0.03]), jax.jit(jax.vmap(out))
    difference = np.asarray(every(delay + 1e-6) - every(delay - 1e-6)) / 2e-6
    slopes = jax.jit(jax.vmap(jax.grad(out)))(delay)
    np.testing.assert_allclose(slopes, difference, rtol=1e-3)


def test_held_controls():
    found = run(Delay(0.02, 2, "previous"), [1.0, 2.0, 3.0, 4.0])
    assert found.tolist() == [0.0, 0.0, 1.0, 2.0]
    # The default number of samples.
    assert (
        Delay(0.02, dt=0.01).num_samples == 2 and Delay(0.0, dt=0.01).num_samples == 1
    )


# Laws of the other models.


def test_filters_follow_their_equation():
    times = 0.01 * np.arange(30)
    found = run(ControlFilter(0.05), np.ones(30))
    assert found == pytest.approx(1.0 - np.exp(-times / 0.05), abs=1e-6)
    lag, state = TorqueLag(0.05), jnp.zeros(1)
    for expected in found:
        state, out = lag(state, inputs(force=1.0))
        assert float(out) == pytest.approx(expected, abs=1e-6)


@given(controls=st.lists(st.floats(-2.0, 2.0), min_size=1, max_size=20))
@settings(max_examples=examples(20))
def test_backlash_is_a_play_operator(controls):
    """It stays within the gap, and moves only as far as needed."""
    found = run(Backlash(0.6), controls)
    assert np.all(np.abs(found - controls) <= 0.3 + 1e-6)
    for old, new, control in zip([0.0, *found], found, controls):
        if abs(old - control) <= 0.3:
            assert new == pytest.approx(old, abs=1e-6)


@given(force=st.floats(-9.0, 9.0), velocity=st.floats(-9.0, 9.0))
@settings(max_examples=examples(20))
def test_torque_speed_curve(force, velocity):
    model, none = TorqueSpeedLimit(2.0, 4.0), jnp.zeros(0)
    found = float(model(none, inputs(force=force, velocity=velocity))[1])
    mirrored = float(model(none, inputs(force=-force, velocity=-velocity))[1])
    assert found == pytest.approx(-mirrored, abs=1e-6) and abs(found) <= 2.0 + 1e-6
    if velocity >= 4.0:
        assert found <= 1e-6
    if abs(force) <= 2.0 * (1.0 - min(abs(velocity) / 4.0, 1.0)):
        assert found == pytest.approx(force, abs=1e-6)


@given(velocity=st.floats(-50.0, 50.0))
@settings(max_examples=examples(20))
def test_friction_takes_energy(velocity):
    model = StribeckFriction(0.3, 0.5, 0.1, viscous=0.02)
    found = model(jnp.zeros(0), inputs(velocity=velocity))[1] * velocity
    assert float(found) <= 0.0
    if abs(velocity) > 2.0:
        expected = -0.3 * abs(velocity) - 0.02 * velocity**2
        assert float(found) == pytest.approx(expected, rel=1e-5)


def test_pd_servo_is_the_position_actuator():
    servo = '<position name="s" joint="one" kp="9" kv=".4" forcerange="-2 2"/>'
    native = arm(servo, "implicitfast")
    own = arm('<motor name="s" joint="one"/>', "implicitfast")
    own = own.with_actuator_model("s", PDServo(9.0, 0.4, 2.0))
    pipeline = eqsim.Generalized()
    state = pipeline.init(own, jnp.array([0.05, -0.2]), jnp.array([0.3, 0.2]))
    for target in (0.1, 3.0):
        ctrl = jnp.array([target])
        expected = pipeline.step(native, state, ctrl)
        assert tree_allclose(pipeline.step(own, state, ctrl), expected, rtol=1e-10)


def test_implicit_damping_on_tendons():
    """Integrators include the velocities of force models on all transmissions."""
    text = ARM.replace(
        "<keyframe>",
        '<tendon><fixed name="sum"><joint joint="one" coef="1"/>'
        '<joint joint="two" coef="-.7"/></fixed></tendon><keyframe>',
    )
    load = lambda x: load_mjcf(text.format(actuators=x, integrator="implicitfast"))
    native = load('<position name="s" tendon="sum" kp="9" kv="4"/>')
    own = load('<motor name="s" tendon="sum"/>').with_actuator_model(
        "s", PDServo(9.0, 4.0)
    )
    pipeline, ctrl = eqsim.Generalized(), jnp.array([0.1])
    state = pipeline.init(own, jnp.array([0.05, -0.2]), jnp.array([0.3, 0.2]))
    expected = pipeline.step(native, state, ctrl)
    assert tree_allclose(pipeline.step(own, state, ctrl), expected, rtol=1e-10)


@pytest.mark.parametrize("make", (MLPActuator, GRUActuator))
def test_networks_begin_as_the_law(make):
    model = make(**NETWORK)
    state, force = model(jnp.ones(model.num_states), inputs(1.0, 0.7, 0.2, 3.0))
    assert float(force) == pytest.approx(0.7) and state.shape == (model.num_states,)
    alone = make(**NETWORK, residual=False)
    assert float(alone(jnp.ones(alone.num_states), inputs(force=0.7))[1]) == 0.0


def test_history_of_a_network():
    """The newest inputs come first."""
    model = MLPActuator(("control", "velocity"), (2.0, 1.0), history=2, key=jr.key(0))
    state = jnp.zeros(4)
    for number in (1.0, 2.0, 3.0):
        state, _ = model(state, inputs(control=2.0 * number, velocity=-number))
    assert state.tolist() == [3.0, -3.0, 2.0, -2.0]


# Steps.


MODELS = {
    "delay": Delay(0.005, 4),
    "held delay": Delay(0.005, 4, "previous"),
    "cubic delay": Delay(0.005, 4, "cubic"),
    "filter": ControlFilter(0.03),
    "backlash": Backlash(0.2),
    "limit": TorqueSpeedLimit(2.0, 4.0),
    "friction": StribeckFriction(0.3, 0.5, 0.1, 0.02, 0.1),
    "lag": TorqueLag(0.03),
    "rotor": OutputTorque(0.03, 0.002),
    "servo": PDServo(9.0, 0.4, 2.0),
    "perceptron": MLPActuator(**NETWORK, hidden=(4,), history=1),
    "recurrent": GRUActuator(**NETWORK, size=3),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.quick_cases("delay", "recurrent")
def test_conformance(name):
    model = MODELS[name]
    if name in ("perceptron", "recurrent"):
        # The last layer of a new network is zero.
        model = jax.tree.map(lambda x: x + 0.3, model)
    found = check_actuator_model(model, arm(integrator="implicitfast"), ["one", "two"])
    assert set(found.values()) == {"passed"}


def test_models_act_in_the_order_in_which_they_are_attached():
    first, second = StribeckFriction(0.3, 0.3, 0.1), TorqueSpeedLimit(1.0, 100.0)
    pipeline, ctrl = eqsim.Generalized(), jnp.array([5.0, 0.0])
    sys = arm()
    state = pipeline.init(sys, qd=jnp.array([1.0, 0.0]))
    force = lambda *models: float(
        pipeline.solve(attach(sys, *models), state, ctrl).actuator_force[0]
    )
    assert force(first, second) == pytest.approx(0.99)
    assert force(second, first) == pytest.approx(0.99 - 0.3, abs=1e-6)


def attach(sys, *models):
    for model in models:
        sys = sys.with_actuator_model(("one", "two"), model)
    return sys


def test_parameters_by_actuator_and_shared():
    sys = arm()
    own = sys.with_actuator_model(
        ["two", "one"], [ControlFilter(0.1), ControlFilter(0.2)]
    )
    assert own.actuator_models[0].model.time_constant.tolist() == [0.1, 0.2]
    shared = sys.with_actuator_model(["two", "one"], ControlFilter(0.1), shared=True)
    assert shared.actuator_models[0].model.time_constant.shape == ()
    same = sys.with_actuator_model(["two", "one"], ControlFilter(0.1))
    pipeline, ctrl = eqsim.Generalized(), jnp.array([1.0, 2.0])
    step = lambda s: pipeline.step(s, pipeline.init(s), ctrl)
    assert tree_allclose(step(shared), step(same))
    # States come actuator by actuator, in the order of the names.
    act = step(own).act
    expected = [2.0 * -np.expm1(-0.002 / 0.1), -np.expm1(-0.002 / 0.2)]
    assert act.tolist() == pytest.approx(expected)


def test_keyframes_and_removal():
    sys = attach(arm(), Delay(0.01, 3), ControlFilter(0.1))
    assert sys.na == 8 and sys.keyframe("bent").act.tolist() == [0.0] * 8
    assert eqsim.Generalized().init_keyframe(sys, "bent").act.shape == (8,)
    assert tree_allclose(sys.without_actuator_models(), arm())


def test_robots_with_models_of_their_own():
    """A batch of robots, as of randomization."""
    sys = attach(arm(), StribeckFriction(0.1, 0.2, 0.1))
    pipeline = eqsim.Generalized()
    where = lambda s: s.actuator_models[0].model.coulomb

    def step(coulomb, seed):
        robot = eqx.tree_at(where, sys, coulomb)
        state = pipeline.init(robot, qd=jnp.array([1.0, -0.5]) * seed)
        return pipeline.step(robot, state, jnp.ones(2))

    values, seeds = jnp.array([[0.1, 0.2], [0.5, 0.0], [0.3, 0.3]]), jnp.arange(3.0)
    many = jax.jit(jax.vmap(step))(values, seeds)
    for k in range(3):
        one = step(values[k], seeds[k])
        assert tree_allclose(jax.tree.map(lambda x: x[k], many), one, rtol=1e-9)


@pytest.mark.parametrize("integrator", ("Euler", "RK4"))
@pytest.mark.quick_cases("RK4")
def test_derivatives_through_time(integrator):
    """By all parameters over several steps, through the memory of the models."""
    robot = arm(integrator=integrator)
    sys = attach(robot, Delay(0.0047, 4), TorqueLag(0.01), MODELS["friction"])
    pipeline = eqsim.Generalized()

    def final(models, controls):
        robot = eqx.tree_at(lambda s: s.actuator_models, sys, models)
        move = lambda state, ctrl: (pipeline.step(robot, state, ctrl), None)
        return eqsim.scan(move, pipeline.init(robot), controls)[0].q

    controls = jr.normal(jr.key(0), (6, 2))
    largest = check_gradients(final, sys.actuator_models, controls, rtol=1e-4)
    assert largest["[0][0].model.delay"] > 0.0
    assert largest["[0][1].model.time_constant"] > 0.0


def test_disabled_actuators_exert_no_force():
    group = '<motor name="one" joint="one" group="1"/><motor name="two" joint="two"/>'
    text = ARM.format(actuators=group, integrator="Euler")
    sys = load_mjcf(text.replace("<option ", '<option actuatorgroupdisable="1" '))
    sys = sys.with_actuator_model(["one", "two"], PDServo(9.0, 0.4))
    pipeline = eqsim.Generalized()
    found = pipeline.solve(sys, pipeline.init(sys), jnp.ones(2)).actuator_force
    assert found.tolist() == [0.0, 9.0]


def test_save_and_load(tmp_path):
    sys = attach(arm(), Delay(0.01, 3), MODELS["recurrent"])
    eqsim.save(tmp_path / "robot", sys)
    loaded = eqsim.load(tmp_path / "robot")
    assert jax.tree.structure(loaded) == jax.tree.structure(sys)
    assert tree_allclose(loaded, sys)


class Gain(AbstractForceModel):
    """A third-party model: a gain, and faulty variants of it."""

    gain: jax.Array
    kind: str = eqx.field(static=True, default="good")

    @property
    def num_states(self):
        return 1 if self.kind == "shape" else 0

    def __call__(self, state, inputs):
        if self.kind == "scalar":
            return state, inputs.force[None]
        if self.kind == "shape":
            return state[:0], inputs.force
        if self.kind == "single":
            return inputs.force
        if self.kind == "first":
            return state, self.gain[0] * inputs.force
        if self.kind == "length":
            return state, inputs.force * jnp.sqrt(jnp.abs(inputs.length))
        if self.kind == "root":
            return state, inputs.force * jnp.sqrt(jnp.abs(inputs.velocity))
        if self.kind == "callback":
            shape = jax.ShapeDtypeStruct((), inputs.force.dtype)
            force = jax.lax.stop_gradient(inputs.force)
            return state, jax.pure_callback(lambda x: x, shape, force)
        return state, self.gain * inputs.force


def test_models_of_third_parties(tmp_path):
    model = Gain(jnp.asarray(2.0))
    assert set(check_actuator_model(model, arm(), ["one"]).values()) == {"passed"}
    sys = arm().with_actuator_model("one", model)
    eqsim.save(tmp_path / "robot", sys)
    with pytest.raises(ValueError, match="like=tree"):
        eqsim.load(tmp_path / "robot")
    assert tree_allclose(eqsim.load(tmp_path / "robot", like=sys), sys)


@pytest.mark.parametrize(
    ("kind", "says"),
    (
        ("root", "(?s)derivative.*Beware of square"),
        ("length", "(?s)derivative.*Beware of square"),
        ("callback", "(?s)actuator_kernels.*CPU kernels"),
    ),
    ids=("root", "length", "callback"),
)
@pytest.mark.quick_cases("root", "callback")
def test_the_kit_finds_faults(kind, says):
    with pytest.raises(ConformanceError, match=says):
        check_actuator_model(Gain(jnp.asarray(2.0), kind), arm(), ["one"])


WRONG = {
    "unknown actuator": (("tow",), ControlFilter(0.1), "'tow'. Did you mean 'two'"),
    "repeated": (("one", "one"), ControlFilter(0.1), "must be different actuators"),
    "count": (("one", "two"), [ControlFilter(0.1)], "1 entries for 2 actuators"),
    "structure": (
        ("one", "two"),
        [ControlFilter(0.1), Backlash(0.1)],
        "must have the same structure",
    ),
    "scalar": (("one",), Gain(jnp.ones(()), "scalar"), r"\(0,\) and \(1,\)"),
    "shape": (("one",), Gain(jnp.ones(()), "shape"), r"a state of shape \(1,\)"),
    "single": (("one",), Gain(jnp.ones(()), "single"), "must return two values"),
    "integers": (("one",), Gain(jnp.arange(2)), "must be floating point"),
    "number": (("one",), Gain(2.0), "must be an array or static, got a float"),
    "function": (("one",), Gain(jnp.tanh), "must be an array or static"),
    "shapes": (
        ("one", "two"),
        [Gain(jnp.ones(())), Gain(jnp.ones((1,)), "first")],
        "same structure and shapes",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_models(case):
    names, model, says = WRONG[case]
    with pytest.raises(ValueError, match=says):
        arm().with_actuator_model(names, model)


def test_wrong_types_and_arguments():
    # Of the type checker of tests, or of eqsim.
    with pytest.raises(TypeError, match="AbstractActuatorModel|AbstractControlModel"):
        arm().with_actuator_model("one", lambda state, inputs: (state, inputs.force))
    with pytest.raises(ValueError, match="needs one model for all"):
        arm().with_actuator_model("one", [ControlFilter(0.1)], shared=True)
    ball = ARM.replace('name="two" axis="0 1 0"', 'name="two" type="ball"')
    ball = ball.replace('qpos=".1 .2"', 'qpos=".1 1 0 0 0"')
    servo = (
        '<orientation name="o" joint="two" kp="1"/><pid name="p" joint="one" kp="1"/>'
    )
    sys = load_mjcf(ball.format(actuators=servo, integrator="Euler"))
    with pytest.raises(ValueError, match="'o' is an orientation servo"):
        sys.with_actuator_model("o", PDServo(1.0, 1.0))
    with pytest.raises(ValueError, match="'p' has . controls; a control model needs"):
        sys.with_actuator_model("p", ControlFilter(0.1))
    with pytest.raises(ValueError, match="batch of robots"):
        jax.tree.map(lambda x: x[None], arm()).with_actuator_model("one", Backlash(0.1))


def test_wrong_parameters():
    for call, says in (
        (lambda: Delay(0.1), "needs `num_samples`"),
        (lambda: Delay(0.1, 0), "at least 1"),
        (lambda: Delay(0.1, 2, "quintic"), "previous, linear, cubic"),
        (
            lambda: MLPActuator(("speed",), (1.0,), key=jr.key(0)),
            "among control, error",
        ),
        (
            lambda: MLPActuator(("error",), (1.0, 2.0), key=jr.key(0)),
            "one entry per input",
        ),
        (lambda: GRUActuator(("error",), (1.0,), 0, key=jr.key(0)), "at least 1"),
    ):
        with pytest.raises(ValueError, match=says):
            call()


@pytest.mark.parametrize("make", (eqsim.Spring, eqsim.Positional))
def test_substeps_have_no_memory(make):
    """These pipelines accept functions, and refuse memory by name."""
    pipeline = make()
    sys = arm().with_actuator_model("one", StribeckFriction(0.1, 0.2, 0.1))
    state = pipeline.init(sys, qd=jnp.array([1.0, 0.0]))
    slow = pipeline.step(sys, state, jnp.zeros(2)).qd[0]
    assert slow < pipeline.step(arm(), state, jnp.zeros(2)).qd[0]
    with pytest.raises(ValueError, match="Delay of actuator 'one' has memory"):
        pipeline.init(arm().with_actuator_model("one", Delay(0.01, 2)))


def test_friction_is_implicit():
    """A joint that is nearly at rest comes to rest, where explicit integration chatters."""
    friction, fastest = StribeckFriction(9.0, 9.0, 0.1, 0.0, 1e-3), {}
    for integrator in ("Euler", "implicitfast"):
        sys = arm(integrator=integrator).with_actuator_model(["one", "two"], friction)
        pipeline = eqsim.Generalized()
        start = pipeline.init(sys, qd=jnp.array([1e-4, -1e-4]))
        step = lambda state, _: (pipeline.step(sys, state, jnp.zeros(2)), None)
        end, _ = eqsim.scan(step, start, length=100)
        fastest[integrator] = float(jnp.max(jnp.abs(end.qd)))
    assert fastest["implicitfast"] < 1e-5 < 1e-2 < fastest["Euler"]


def test_memory_advances_once_per_step():
    """Also with an integrator of several stages."""
    sys = arm(integrator="RK4").with_actuator_model("one", Delay(0.004, 2))
    pipeline = eqsim.Generalized()
    state = pipeline.init(sys)
    for number in (1.0, 2.0, 3.0):
        state = pipeline.step(sys, state, jnp.array([number, 0.0]))
    assert state.act.tolist() == [3.0, 2.0]
