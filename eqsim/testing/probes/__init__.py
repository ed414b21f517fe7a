"""Probes: minimal environments with known solutions, each of which requires one more
ability of an agent than the one before."""

from ._point_mass import point_mass as point_mass, PointMass as PointMass
from ._probe import Probe as Probe, ProbeState as ProbeState
from ._probes import (
    action_reward as action_reward,
    constant_reward as constant_reward,
    delayed_reward as delayed_reward,
    observed_action_reward as observed_action_reward,
    observed_reward as observed_reward,
)
