"""Fields of an agent as options of a command."""

import dataclasses
import enum
import functools as ft
import keyword
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from eqsim import AbstractAgent

from ..runs._help import field_descriptions
from ..runs._recorded import Offline
from ..runs._settings import describe, full_name, options, parse


_METAVARS = {"i": "INT", "u": "INT", "f": "FLOAT"}


@dataclasses.dataclass(frozen=True)
class AgentOptions:
    """Options for the fields of an agent.

    **Arguments:**

    - `agent`: agent with the default values.
    - `holder`: dataclass for tyro, with one field per option.
    - `names`: fields of the agent by the field of `holder`.
    """

    agent: AbstractAgent
    holder: type
    names: dict[str, str]

    def settings(self, parsed: Any) -> dict[str, Any]:
        """Return the fields of the agent that differ from their defaults, by name."""
        defaults = {f.name: f.default for f in dataclasses.fields(self.holder)}
        values = {name: vars(parsed)[name] for name in self.names}
        changed = {k: v for k, v in values.items() if v != defaults[k]}
        return {
            self.names[k]: parse(self.agent, self.names[k], v)
            if isinstance(v, str)
            else v
            for k, v in changed.items()
        }


def agent_options(
    agent: AbstractAgent, make: Callable[..., Any], taken: Iterable[str]
) -> AgentOptions:
    """Return options for the fields of an agent, with its values as defaults.

    **Arguments:**

    - `make`: class of the agent, or a function that makes it.
    - `taken`: options of the command: a field of that name becomes `agent.NAME`.
    """
    fields, names, taken = [], {}, {*taken}
    values = describe(agent)
    for name, (holder, value) in options(agent, make).items():
        own = name.rpartition(".")[2]
        text = field_descriptions(type(holder)).get(own, "")
        text = text[:1].upper() + text[1:]
        option = f"agent.{name}" if name in taken else name
        # Without the name of what holds it, where that is clear.
        short = own != name and own not in taken and full_name(agent, own) == name
        aliases = (f"--{own.replace('_', '-')}",) if short else ()
        key = option.replace(".", "__")
        kind, default = _option_type(agent, name, value, values[name])
        about = tyro.conf.arg(name=option, help=text, aliases=aliases)
        annotated = Annotated[kind, about]
        fields.append((key, annotated, dataclasses.field(default=default)))
        names[key] = name
    holder = dataclasses.make_dataclass("Fields", fields, frozen=True)
    learns = agent.agent if isinstance(agent, Offline) else agent
    holder.__doc__ = f"Fields of {type(learns).__name__}."
    return AgentOptions(agent, holder, names)


def section_name(agent: str) -> str:
    """Return the name of an agent as a Python identifier, used as heading of its
    options."""
    word = "".join(c if c.isalnum() else "_" for c in agent)
    return f"{word}_" if keyword.iskeyword(word) or word[:1].isdigit() else word


def _option_type(
    agent: AbstractAgent, name: str, value: Any, encoded: Any
) -> tuple[Any, Any]:
    """Return the type of an option, and its default."""
    if isinstance(value, enum.Enum):
        names = tuple(type(value).__members__)
        return Literal[names], encoded
    if np.asarray(value).dtype.kind == "b":
        return Literal["true", "false"], str(encoded).lower()
    several = isinstance(encoded, list)
    first = encoded[0] if several else value
    kind = _METAVARS.get(np.asarray(first).dtype.kind, "STR")
    if not several and kind == "FLOAT":
        encoded = float(encoded)
    spec = tyro.constructors.PrimitiveConstructorSpec(
        nargs="*" if several else 1,
        metavar=f"{kind},..." if several else kind,
        instance_from_str=ft.partial(_read, agent, name),
        is_instance=lambda x: True,
        str_from_instance=lambda x: [_shown(x)],
    )
    default = tuple(encoded) if several else encoded
    return Annotated[Any, spec], default


def _read(agent: AbstractAgent, name: str, words: list[str]) -> Any:
    return parse(agent, name, ",".join(words))


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
