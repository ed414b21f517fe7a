"""Recordings: what they are, where they come from, and where they are kept."""

from ._checks import check_fits as check_fits
from ._dataset import (
    About as About,
    Dataset as Dataset,
    joined as joined,
    with_scaled_rewards as with_scaled_rewards,
)
from ._host import HostArray as HostArray
