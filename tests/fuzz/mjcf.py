"""MJCF: elements and attributes of small models changed at random."""

import copy
import xml.etree.ElementTree as ET
from random import Random

import eqsim
from eqsim.io import load_mjcf, write_mjcf

from .models import ASSETS, MODELS
from .mutations import damaged, foreign, number, word


_TREES = [ET.fromstring(text) for text in MODELS]
_ELEMENTS = [element for tree in _TREES for element in tree.iter()]
_VALUES: dict[str, list[str]] = {}
_ATTRIBUTES: dict[str, list[str]] = {}
_CHILDREN: dict[str, list[ET.Element]] = {}
for _element in _ELEMENTS:
    _CHILDREN.setdefault(_element.tag, []).extend(_element)
    for _name, _value in _element.attrib.items():
        _VALUES.setdefault(_name, []).append(_value)
        _ATTRIBUTES.setdefault(_element.tag, []).append(_name)
_KINDS = tuple(
    """
    hinge slide ball free plane sphere capsule ellipsoid box cylinder mesh hfield
    sdf true false auto muscle user dcmotor RK4 Euler implicit pyramidal elliptic
    integrator filterexact
    """.split()
)
_ODD = tuple(
    """
    flexcomp composite skin plugin deformable attach model flex dcmotor user
    contact insidesite magnetometer camprojection e_kinetic
    """.split()
)


class Kind:
    """Law: `load_mjcf` returns a robot that `write_mjcf` can write and that loads again, or
    raises `ValueError` or `FileNotFoundError`."""

    REFUSALS = (ValueError, FileNotFoundError, TypeError)
    WRITES = ()

    def __init__(self, folder):
        self.folder = folder
        load_mjcf(MODELS[0])

    def attempt(self, rng: Random):
        text, assets = _text(rng), dict(ASSETS)
        if rng.random() < 0.1:
            name = rng.choice(sorted(assets))
            assets[name] = _asset(rng, assets[name], self.folder)
        sys = load_mjcf(text, assets)
        written = write_mjcf(sys)
        again = load_mjcf(written)
        assert (again.nq, again.nv, again.nu) == (sys.nq, sys.nv, sys.nu), (
            "sizes differ"
        )
        assert isinstance(again, eqsim.System)


def _asset(rng: Random, data: bytes, folder) -> bytes:
    return damaged(rng, data) if rng.random() < 0.7 else foreign(rng, folder / "canary")


def _text(rng: Random) -> str:
    tree = copy.deepcopy(rng.choice(_TREES))
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 4))):
        _change(rng, tree)
    text = ET.tostring(tree, encoding="unicode")
    if rng.random() < 0.06:
        data = damaged(rng, text.encode(errors="replace"))
        text = data.decode(rng.choice(("utf-8", "latin-1")), errors="replace")
    return text


def _change(rng: Random, tree: ET.Element) -> None:
    elements = list(tree.iter())
    parents = {child: parent for parent in elements for child in parent}
    one = rng.choice(elements)
    action = rng.random()
    if action < 0.55:
        _change_attribute(rng, one)
    elif action < 0.67:
        own = rng.random() < 0.9 and one.tag in _ATTRIBUTES
        name = rng.choice(_ATTRIBUTES[one.tag] if own else sorted(_VALUES))
        one.set(name, rng.choice(_VALUES[name]))
    elif action < 0.73 and one in parents:
        parents[one].remove(one)
    elif action < 0.79 and one in parents:
        parents[one].append(copy.deepcopy(one))
    elif action < 0.89:
        fits = _CHILDREN.get(one.tag) if rng.random() < 0.9 else None
        one.append(copy.deepcopy(rng.choice(fits or _ELEMENTS)))
    elif action < 0.905:
        one.tag = rng.choice((*_ODD, *(x.tag for x in rng.sample(_ELEMENTS, 3))))
    elif action < 0.92:
        ET.SubElement(one, rng.choice(_ODD), {rng.choice(sorted(_VALUES)): "1"})
    elif action < 0.94:
        _nest(rng, one)
    elif one in parents and len(parents[one]) > 1:
        parent = parents[one]
        parent.remove(one)
        parent.insert(rng.randrange(len(parent) + 1), one)
    else:
        one.text = "".join(c for c in word(rng)[:50] if c.isprintable())


def _nest(rng: Random, element: ET.Element) -> None:
    inner = element
    for _ in range(rng.choice((5, 50, 400))):
        inner = ET.SubElement(inner, rng.choice(("body", "frame", "default", "body")))


def _change_attribute(rng: Random, element: ET.Element) -> None:
    if not element.attrib:
        known = _ATTRIBUTES.get(element.tag) or sorted(_VALUES)
        element.set(rng.choice(known), _printable(word(rng)))
        return
    name = rng.choice(sorted(element.attrib))
    words = element.attrib[name].split()
    action = rng.random()
    if action < 0.25 and words:
        words[rng.randrange(len(words))] = f"{rng.gauss(0, 3):.3g}"
    elif action < 0.45 and words:
        words[rng.randrange(len(words))] = repr(number(rng))
    elif action < 0.5:
        words = [repr(number(rng))] * max(len(words), 1)
    elif action < 0.53:
        words = words * 2
    elif action < 0.6:
        words = words[:-1]
    elif action < 0.7:
        words = [rng.choice(_VALUES[name])]
    elif action < 0.78:
        words = [rng.choice(_KINDS)]
    elif action < 0.95:
        del element.attrib[name]
        return
    else:
        words = [_printable(word(rng))]
    element.set(name, " ".join(words))


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable() and not 0xD800 <= ord(c) < 0xE000)
