"""Metadata of datasets."""

from typing import NamedTuple


class About(NamedTuple):
    """Metadata of a dataset.

    - `env`: name of the environment; None if unknown.
    - `sources`: descriptions of the policies that acted.
    - `random_return`, `expert_return`: mean returns of a random and of an expert policy, by
        which scores are normalized; None if unknown.
    """

    env: str | None = None
    sources: tuple[str, ...] = ()
    random_return: float | None = None
    expert_return: float | None = None

    def score(self, returns: float) -> float:
        r"""Return the normalized score
        $100\,(R - R_\mathrm{random}) / (R_\mathrm{expert} - R_\mathrm{random})$.

        **Raises:** `ValueError` if one of the two returns is unknown.

        ??? cite "Reference"
            Fu et al., *D4RL: datasets for deep data-driven reinforcement learning*, 2020,
            section 5.
        """
        if self.random_return is None or self.expert_return is None:
            raise ValueError(
                "A score needs the returns of a random and of an expert policy, but "
                f"`random_return` is {self.random_return} and `expert_return` is "
                f"{self.expert_return}. Record the dataset with both, or set them."
            )
        return (
            100.0
            * (returns - self.random_return)
            / (self.expert_return - self.random_return)
        )
