"""Options of `eqsim train`."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import tyro

import eqsim


Logger = Literal["tensorboard", "wandb"]
_Several = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


@dataclasses.dataclass(frozen=True)
class Request:
    """Options that do not depend on the agent."""

    agent: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="AGENT")]
    """Name of the agent, for instance `ppo`."""
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Name of the environment, for instance `ant`, or `module:Class`."""
    preset: str | None = None
    """Name of an alternative preset, for instance `qdax`."""
    steps: float | None = None
    """Number of control steps, summed over all environments, for instance 2e7; by default
    that of the preset."""
    seed: int = 0
    """Random seed."""
    out: str | None = None
    """Folder of the run; by default runs/AGENT-ENV."""
    settings: Annotated[_Several, tyro.conf.arg(name="set", metavar="FIELD=VALUE")] = ()
    """Field of the agent, the same as `--FIELD VALUE`; may be repeated."""
    sweep: Annotated[_Several, tyro.conf.arg(metavar="FIELD=A,B,C")] = ()
    """Values of a numeric field, trained together in one program; if repeated, all
    combinations are trained."""
    num_seeds: int = 1
    """Number of seeds, from `--seed` on, trained together in one program."""
    pipeline: str | None = None
    """Name of the pipeline; by default that of the environment."""
    episode_length: int | None = None
    """Time limit of an episode in control steps; by default 1000."""
    randomize: str | None = None
    """Randomization preset, applied in each episode."""
    skills: str | None = None
    """Skills of an agent that learns skills: one_hot:5, uniform:2 or normal:2; by default
    one_hot:5. With options of `Skills`:
    one_hot:5,resample_probability=0.02,least_steps=10."""
    data: str | None = None
    """Dataset for an agent such as `iql`, see `eqsim record`. A step is then an update."""
    pool_size: int = 1024
    """Number of initial states computed in advance; 0 computes one for each episode."""
    evaluations: int = 10
    """Number of evaluations."""
    episodes: int = 32
    """Episodes of each evaluation."""
    turns: int = 100
    """Approximate number of rows of metrics."""
    logger: Logger | None = None
    """Additional logger; needs the extra of the same name."""
    video: int = 0
    """Write an animation of an episode at every n-th evaluation, to the folder `videos`;
    0 for none."""
    overwrite: bool = False
    """Delete an existing run in the folder."""


RUN_OPTIONS = tuple(field.name for field in dataclasses.fields(Request))


class Names(NamedTuple):
    """Arguments that determine which fields there are, and their defaults; None if they
    are not given."""

    agent: str | None
    env: str | None
    preset: str | None
    data: str | None


def read_names(argv: Sequence[str]) -> Names:
    """Find agent, environment, preset and dataset among the arguments of `eqsim train`,
    whose other options are not known yet.

    The agent is the first word that names one and is not the value of an option; the next
    word is the environment.
    """
    words = [part for word in argv for part in _split(word)]
    values = dict(zip(words, words[1:]))
    known = {*eqsim.AGENTS.names(), *eqsim.AGENTS.plugins(), *eqsim.AGENTS.hidden()}
    places = [k for k, word in enumerate(words) if word in known]
    free = [k for k in places if not k or not _takes_value(words[k - 1])]
    if not free:
        return Names(None, None, None, None)
    (first, *_) = free
    following = words[first + 1 : first + 2]
    env = following[0] if following and not following[0].startswith("-") else None
    return Names(words[first], env, values.get("--preset"), values.get("--data"))


def _split(word: str) -> list[str]:
    """Split `--option=value` into two words."""
    return word.split("=", 1) if word.startswith("--") else [word]


def _takes_value(word: str) -> bool:
    """Return whether a word is an option of the run that has a value."""
    name = word.removeprefix("--").replace("-", "_")
    known = name in RUN_OPTIONS or name == "set"
    return word.startswith("--") and known and name != "overwrite"
