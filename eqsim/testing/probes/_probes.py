"""The probes, in the order in which an agent should pass them."""

from ._probe import Probe


def constant_reward() -> Probe:
    """Reward 1, whatever happens: a value function must learn the number 1."""
    return Probe(constant=1.0)


def observed_reward() -> Probe:
    """The reward is the context, -1 or 1: a value function must read the observation."""
    return Probe(seen=1.0)


def delayed_reward() -> Probe:
    """Reward 1 after two steps: the value of the first observation is the discount, that
    of the second 1."""
    return Probe(constant=1.0, length=2.0)


def action_reward() -> Probe:
    """Reward $1 - (u - 1/2)^2$: the policy must learn the number 1/2, whatever it sees.

    The best mean reward is 1; without action it is 0.75.
    """
    return Probe(constant=1.0, weight=1.0, goal=0.5)


def observed_action_reward() -> Probe:
    """Reward $1 - (u - c/2)^2$: the policy must learn to answer the context.

    The best mean reward is 1; a policy that does not look gets 0.75 at best.
    """
    return Probe(constant=1.0, weight=1.0, follow=0.5)
