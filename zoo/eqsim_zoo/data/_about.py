"""What is known about recordings beside their numbers."""

from typing import NamedTuple


class About(NamedTuple):
    """Where a dataset comes from.

    - `env`: name of the environment; None if it is not known.
    - `sources`: what acted, in words.
    - `random_return`, `expert_return`: mean returns of a policy that knows nothing and of
        one that is good, by which scores are normalized; None if they are not known.
    """

    env: str | None = None
    sources: tuple[str, ...] = ()
    random_return: float | None = None
    expert_return: float | None = None

    def score(self, returns: float) -> float:
        r"""$100\,(R - R_\mathrm{random}) / (R_\mathrm{expert} - R_\mathrm{random})$.

        **Raises:** `ValueError` if one of the two is not known.

        ??? cite "Reference"
            Fu et al., *D4RL: datasets for deep data-driven reinforcement learning*, 2020,
            section 5.
        """
        if self.random_return is None or self.expert_return is None:
            raise ValueError(
                "The dataset does not say what a random and an expert policy reach "
                f"(`random_return` is {self.random_return}, `expert_return` is "
                f"{self.expert_return}): record it with both, or set them."
            )
        return (
            100.0
            * (returns - self.random_return)
            / (self.expert_return - self.random_return)
        )
