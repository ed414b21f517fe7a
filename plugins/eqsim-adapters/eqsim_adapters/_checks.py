from eqsim import AbstractEnv
from eqsim.wrappers import AbstractWrapper, layers, Lifetime


def check_no_reset(env: AbstractEnv, library: str) -> None:
    """Raise `ValueError` if `env` contains a wrapper whose state is kept over
    episodes."""
    for held in layers(env):
        if isinstance(held, AbstractWrapper) and held.lifetime is Lifetime.RUN:
            raise ValueError(
                f"`{type(held).__name__}` spans several episodes, but {library} starts "
                "episodes itself. Leave it out."
            )
