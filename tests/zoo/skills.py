"""Small agents of skills, which learn on a point mass in half a minute."""

import eqsim_zoo as zoo
from eqsim.testing import probes
from eqsim.wrappers import OneHotSkills, Skills


SAC = zoo.SAC(
    num_envs=32,
    unroll_length=1,
    num_updates=8,
    batch_size=128,
    capacity=2**15,
    actor_hidden=(64, 64),
    critic_hidden=(64, 64),
    random_steps=1000.0,
    learning_rate=1e-3,
    temperature_learning_rate=1e-3,
    discount=0.9,
    target_rate=0.01,
)
NETWORK = {"sac": SAC, "hidden": (64, 64), "learning_rate": 1e-3}
# On a point mass all skills go equally fast: deviations of 1 would hide which is which.
SHARP = {
    "identity_covariance": False,
    "std_range": (0.1, 10.0),
    "omit_input_dynamics_dim": 2,
}
TINY = zoo.SAC(
    num_envs=7,
    unroll_length=2,
    num_updates=2,
    batch_size=13,
    capacity=140,
    actor_hidden=(8,),
    critic_hidden=(8,),
    random_steps=20.0,
    normalize_observations=True,
)


def diayn(**options):
    """Tiny."""
    return zoo.DIAYN(**{"sac": TINY, "hidden": (8,)} | options)


def dads(**options):
    """Tiny."""
    fixed = {"sac": TINY, "hidden": (8,), "omit_input_dynamics_dim": 2}
    return zoo.DADS(**fixed | options)


def plane(prior=None):
    """A point mass that is given skills."""
    return Skills(probes.point_mass(), OneHotSkills(5) if prior is None else prior)
