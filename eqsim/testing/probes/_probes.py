"""The probes, in the order in which an agent should pass them."""

from ._probe import Probe


def constant_reward() -> Probe:
    """Create a probe with reward 1: a value function must learn a constant."""
    return Probe(constant=1.0)


def observed_reward() -> Probe:
    """Create a probe whose reward is the context, -1 or 1: a value function must use
    the observation."""
    return Probe(seen=1.0)


def delayed_reward() -> Probe:
    """Create a probe with reward 1 after two steps: the value of the first observation
    is the discount, and that of the second is 1."""
    return Probe(constant=1.0, length=2.0)


def action_reward() -> Probe:
    """Create a probe with reward $1 - (u - 1/2)^2$: the policy must learn the action
    1/2.

    The best mean reward is 1; without action it is 0.75.
    """
    return Probe(constant=1.0, weight=1.0, goal=0.5)


def observed_action_reward() -> Probe:
    """Create a probe with reward $1 - (u - c/2)^2$: the policy must use the
    observation.

    The best mean reward is 1; a policy that ignores the observation gets at most 0.75.
    """
    return Probe(constant=1.0, weight=1.0, follow=0.5)
