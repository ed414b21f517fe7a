"""Descriptions of the fields of an agent, from the docstrings of its classes."""

import inspect
import re

import equinox as eqx


# Names of one or several fields and a colon, at the start of an item or a sentence.
_NAMES = re.compile(r"(?:^|(?<=[.;] ))((?:`\w+`(?:, | and )?)+): ")
_GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "eta": "η",
    "lambda": "λ",
    "nu": "ν",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "theta": "θ",
    "pi": "π",
}


def field_descriptions(holder: type) -> dict[str, str]:
    """Return the descriptions of the fields of a class by name, as plain text.

    They are read from the section `**Arguments:**` in the docstrings of the class and of
    its bases. Fields without a description are left out.
    """
    found: dict[str, str] = {}
    for base in reversed(holder.__mro__):
        if issubclass(base, eqx.Module) and base.__doc__:
            found |= _described(inspect.cleandoc(base.__doc__))
    return found


def _described(docstring: str) -> dict[str, str]:
    _, _, rest = docstring.partition("**Arguments:**")
    section = re.split(r"\n\n(?=\S)(?!- )", rest, maxsplit=1)[0]
    found = {}
    for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:]:
        # Names and texts alternate after the text before the first name.
        parts = _NAMES.split(" ".join(item.split()))[1:]
        for names, text in zip(parts[::2], parts[1::2]):
            for name in re.findall(r"\w+", names):
                if name != "and":
                    found[name] = _plain(text.strip())
    return found


def _plain(text: str) -> str:
    """Remove the markup of mathematics and code."""
    text = re.sub(r"\\\\?(\w+)", lambda m: _GREEK.get(m[1], m[1]), text)
    return re.sub(r"[$`{}]", "", text)
