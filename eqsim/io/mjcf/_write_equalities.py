"""Writing of equality constraints as MJCF elements."""

import xml.etree.ElementTree as ET

from ...model import EqualityKind, System
from ._xml import add_element


def write_equalities(root: ET.Element, sys: System) -> None:
    """Write the equality constraints of a system."""
    own = sys.equalities
    if not own.names:
        return
    parent = ET.SubElement(root, "equality")
    for k, (name, kind) in enumerate(zip(own.names, own.kinds, strict=True)):
        attributes = {
            "name": name,
            "active": bool(own.active[k] > 0),
            "solref": own.solref[k],
            "solimp": own.solimp[k],
        }
        add_element(parent, kind.name.lower(), attributes | _specific(sys, k, kind))


def _specific(sys: System, k: int, kind: EqualityKind) -> dict:
    own = sys.equalities
    if kind in (EqualityKind.JOINT, EqualityKind.TENDON):
        names = sys.joints.names if kind is EqualityKind.JOINT else sys.tendons.names
        objects = _objects(kind.name.lower(), names, own.objects[k])
        return objects | {"polycoef": own.coefficients[k]}
    if own.at_sites[k]:
        scale = (
            {"torquescale": own.torque_scale[k]} if kind is EqualityKind.WELD else {}
        )
        return _objects("site", sys.sites.names, own.objects[k]) | scale
    objects = _objects("body", sys.links.names, own.objects[k])
    first, second = own.anchors[k]
    if kind is EqualityKind.CONNECT:
        return objects | {"anchor": first}
    return objects | {
        "anchor": second,
        "relpose": [*first, *own.relative_quat[k]],
        "torquescale": own.torque_scale[k],
    }


def _objects(word: str, names: tuple[str, ...], pair: tuple[int, int]) -> dict:
    """Return the names of one or two objects; the second link may be the world."""
    first, second = pair
    if word == "body" and first < 0:
        return {"body1": "world", "body2": names[second]}
    objects = {f"{word}1": names[first]}
    return objects | ({f"{word}2": names[second]} if second >= 0 else {})
