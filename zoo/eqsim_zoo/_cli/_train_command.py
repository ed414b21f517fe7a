"""`eqsim train`, whose options are the fields of the agent that it names."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import tyro

import eqsim

from ..runs._recorded import offline_maker
from ._errors import sentences
from ._fields import agent_options, AgentOptions, section_name
from ._request import Names, read_names, Request, RUN_OPTIONS
from ._train import preset_agent, run_training


SUMMARY = "Train an agent; writes metrics, checkpoints and learning curves."


def _build(argv: Sequence[str]) -> Callable[..., None]:
    names = read_names(argv)
    if names.agent is None:
        return _without_fields
    with sentences():
        options = _options(names)
    section = section_name(names.agent)
    default = dataclasses.field(default_factory=options.holder)
    holder = Annotated[options.holder, tyro.conf.OmitArgPrefixes]
    request: Any = dataclasses.make_dataclass(
        "AgentRequest", [(section, holder, default)], bases=(Request,), frozen=True
    )

    def train(request: Request) -> None:
        run_training(request, options.settings(vars(request)[section]))

    train.__doc__ = SUMMARY
    train.__annotations__["request"] = Annotated[request, tyro.conf.arg(name="")]
    return train


def _without_fields(request: Annotated[Request, tyro.conf.arg(name="")]) -> None:
    """Train an agent; writes metrics, checkpoints and learning curves.

    `eqsim train AGENT --help` lists the fields of an agent, and `eqsim train AGENT ENV
    --help` their values in the preset.
    """
    run_training(request, {})


def _options(names: Names) -> AgentOptions:
    assert names.agent is not None
    _, agent, learner = preset_agent(names)
    make = eqsim.AGENTS.get(names.agent)
    offline = learner is not agent
    maker = offline_maker(make) if offline else make
    return agent_options(learner, maker, RUN_OPTIONS)


train_agent = eqsim.plugins.DynamicCommand(SUMMARY, _build)
