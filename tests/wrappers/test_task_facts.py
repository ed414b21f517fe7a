"""Deployment, reflection and tracking of tasks, inside wrappers too."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import pytest
from toys import Rail

import eqsim
from eqsim.envs import (
    check_deployment,
    Deployable,
    Deployment,
    ObservationPart,
    Reflection,
    SignedPermutation,
    Symmetric,
)
from eqsim.wrappers import (
    ActionRepeat,
    ClipAction,
    deployment_of,
    DomainRandomization,
    NoisyObservation,
    progress_of,
    Reach,
    reflection_of,
    ScaleAction,
    StackObservation,
    TimeLimit,
    TorsoPosition,
    tracking_of,
)


DEPLOYMENT = Deployment(
    root="mass0",
    joints=("rail0", "rail1"),
    default_pose=(0.0, 0.5),
    action_scale=(0.25, 0.25),
    stiffness=(20.0, 20.0),
    damping=(0.5, 0.5),
    torque_limit=(5.0, 5.0),
    period=0.1,
    observation=(
        ObservationPart("joint_positions", 2),
        ObservationPart("joint_velocities", 2, 0.05),
    ),
)


class Deployed(Rail):
    """A task that says how it is deployed."""

    def deployment(self):
        return DEPLOYMENT


def test_wrappers_keep_a_deployment_or_refuse():
    assert isinstance(Deployed(), Deployable) and not isinstance(Rail(), Deployable)
    assert deployment_of(Deployed()) == DEPLOYMENT
    assert deployment_of(TimeLimit(NoisyObservation(Deployed(), 0.1), 5)) == DEPLOYMENT
    slower = deployment_of(ActionRepeat(Deployed(), 3))
    assert slower.period == pytest.approx(0.3)
    with pytest.raises(
        ValueError, match="`StackObservation` changes what policies obs"
    ):
        deployment_of(StackObservation(Deployed(), 2))
    with pytest.raises(ValueError, match="`ScaleAction` changes what"):
        deployment_of(ScaleAction(Deployed()))
    draw = eqsim.randomize.masses(0.5, 2.0)
    assert deployment_of(DomainRandomization(Deployed(), draw)) == DEPLOYMENT
    with pytest.raises(ValueError, match="`DomainRandomization` changes what"):
        deployment_of(DomainRandomization(Deployed(), draw, observe_context=True))
    with pytest.raises(ValueError, match="`Reach` changes what"):
        deployment_of(Reach(TorsoPosition(Deployed())))
    with pytest.raises(
        ValueError, match="`Rail` does not say how its policies are dep"
    ):
        deployment_of(Rail())


@pytest.mark.parametrize(
    "change, message",
    (
        ({"stiffness": (1.0,)}, "`Deployment.stiffness` must have one finite number"),
        ({"damping": (1.0, float("nan"))}, "`Deployment.damping` must have one finite"),
        ({"stiffness": (1.0, 0.0)}, "`Deployment.stiffness` must be positive.*servos"),
        ({"damping": (1.0, -1.0)}, "`Deployment.damping` must be at least 0"),
        ({"torque_limit": (0.0, 1.0)}, "`Deployment.torque_limit` must be positive"),
        ({"joint_damping": (1.0,)}, "`Deployment.joint_damping` must have one finite"),
        ({"target_range": ((0.0, 1.0),)}, "`Deployment.target_range` must have one"),
        ({"period": 0.0}, "`Deployment.period` must be positive, got 0.0"),
        ({"observation": (ObservationPart("smell", 2),)}, "names 'smell', which no"),
        (
            {"observation": (ObservationPart("gravity", 2),)},
            "must have 3 entries, got 2",
        ),
        ({"observation": (ObservationPart("last_action", 3),)}, "must have 2 entries"),
    ),
)
def test_wrong_deployments(change, message):
    with pytest.raises(ValueError, match=message):
        check_deployment(DEPLOYMENT._replace(**change))


SWAP = SignedPermutation((1, 0), (-1, -1))
REFLECTION = Reflection(SignedPermutation.join([SWAP, SWAP]), SWAP)


class Mirrored(Rail):
    """A task that has a reflection."""

    low: float
    sign: int = eqx.field(static=True)

    def __init__(self, low=-1.0, sign=-1):
        super().__init__()
        self.low, self.sign = low, sign

    def reflection(self):
        swap = SignedPermutation((1, 0), (self.sign, self.sign))
        return Reflection(SignedPermutation.join([swap, swap]), swap)

    @property
    def action_range(self):
        return jnp.array([[self.low, 1.0], [-1.0, 1.0]])


def test_wrappers_keep_a_reflection_or_refuse():
    assert isinstance(Mirrored(), Symmetric) and not isinstance(Rail(), Symmetric)
    assert reflection_of(TimeLimit(Mirrored(), 5)) == REFLECTION
    assert reflection_of(Mirrored(sign=1)).action.sign == (1, 1)
    with pytest.raises(ValueError, match="so the reflection of `Mirrored` does not"):
        reflection_of(StackObservation(Mirrored(), 2))
    with pytest.raises(ValueError, match="`Rail` has no reflection. Give it a method"):
        reflection_of(Rail())


@pytest.mark.parametrize("sign", (1, -1))
def test_action_ranges_are_mirror_images(sign):
    with pytest.raises(ValueError, match=r"not symmetric: that of .*\[-2.0, 1.0\]"):
        reflection_of(ClipAction(Mirrored(-2.0, sign)))
    with pytest.raises(ValueError, match="not symmetric"):
        eqx.filter_eval_shape(lambda: reflection_of(Mirrored(-2.0, sign)))


@pytest.mark.parametrize(
    "index, sign, message",
    (
        ((0, 0), (1, 1), "each of 0 to 1 once"),
        ((1, 2), (1, 1), "each of 0 to 1 once"),
        ((1, 0), (1,), "2 numbers"),
        ((1, 0), (1, 2), "1 or -1"),
    ),
)
def test_wrong_permutations(index, sign, message):
    with pytest.raises(ValueError, match=message):
        SignedPermutation(index, sign)


@pytest.mark.parametrize(
    "wrong",
    (
        SignedPermutation((1, 0), (1, -1)),
        SignedPermutation((1, 2, 0), (1, 1, 1)),
    ),
)
def test_reflections_are_their_own_inverse(wrong):
    for parts in ((wrong, SWAP), ({"obs": SWAP, "other": wrong}, SWAP), (SWAP, wrong)):
        with pytest.raises(ValueError, match="applied twice, changes nothing"):
            Reflection(*parts)


def test_tracking_is_that_of_the_robot_of_the_episode():
    class Weighed(Rail):
        def tracking(self, state):
            return {"m, kg": (self.sys.links.mass[0], state.q[0])}

    heavier = lambda key, sys: eqx.tree_at(
        lambda s: s.links.mass, sys, sys.links.mass * (1.0 + jr.uniform(key))
    )
    env = TimeLimit(DomainRandomization(Weighed(), heavier), 5)
    state, _ = env.reset(jr.key(0))
    found = tracking_of(env, state)["m, kg"]
    assert found[0] == env.env.robot(state.inner).links.mass[0] != env.sys.links.mass[0]
    assert found[1] == env.physics(state).q[0]
    assert progress_of(env, state) == {"m error, kg": abs(found[0] - found[1])}
    assert tracking_of(TimeLimit(Rail(), 5), state) is None
    assert progress_of(TimeLimit(Rail(), 5), state) == {}


def test_features_of_a_reflection_are_in_the_order_of_names():
    parts = Reflection({"b": SWAP, "a": SignedPermutation((0,), (-1,))}, SWAP)
    assert parts.features() == SignedPermutation((0, 2, 1), (-1, -1, -1))
    assert parts.features(("b",)) == SWAP
    assert REFLECTION.features() == REFLECTION.obs
