"""Learning agents for eqsim."""

from typing import Final


__eqsim_api__: Final = "1.0"
