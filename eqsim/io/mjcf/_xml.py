"""XML elements with values in full precision."""

import xml.etree.ElementTree as ET
from typing import Any

import numpy as np


def _text(value: Any) -> str:
    """Format numbers in full precision; return words unchanged."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    return " ".join(repr(float(number)) for number in np.ravel(value))


def add_element(parent: ET.Element, tag: str, attributes: dict[str, Any]) -> ET.Element:
    """Add an element with attributes: numbers in full precision, words unchanged."""
    return ET.SubElement(parent, tag, {k: _text(v) for k, v in attributes.items()})
