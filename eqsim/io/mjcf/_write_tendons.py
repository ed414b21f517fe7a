"""Writing of sites and tendons as MJCF elements."""

import xml.etree.ElementTree as ET

import numpy as np

from ...model import System, WrapKind
from ._xml import add_element


def write_sites(body: ET.Element, sys: System, link: int) -> None:
    """Write the sites of a link, -1 for the world."""
    sites = sys.sites
    for site, owner in enumerate(sites.links):
        if owner == link:
            attributes = {
                "name": sites.names[site],
                "type": sites.kinds[site].name.lower(),
                "size": sites.size[site],
                "pos": sites.pos[site],
                "quat": sites.quat[site],
            }
            add_element(body, "site", attributes)


def write_tendons(root: ET.Element, sys: System) -> None:
    """Write all tendons."""
    if not sys.ntendon:
        return
    tendons, coef, pulley = sys.tendons, 0, 0
    part = ET.SubElement(root, "tendon")
    for tendon, path in enumerate(tendons.paths):
        fixed = path[0].kind is WrapKind.JOINT
        element = add_element(
            part, "fixed" if fixed else "spatial", _attributes(sys, tendon)
        )
        for point in path:
            if point.kind is WrapKind.JOINT:
                words = {"joint": sys.joints.names[point.target]}
                add_element(element, "joint", words | {"coef": tendons.coef[coef]})
                coef += 1
            elif point.kind is WrapKind.PULLEY:
                add_element(element, "pulley", {"divisor": tendons.divisor[pulley]})
                pulley += 1
            elif point.kind is WrapKind.SITE:
                words = {"site": sys.sites.names[point.target]}
                add_element(element, "site", words)
            else:
                words = {"geom": sys.geoms.names[point.target]}
                if point.side_site >= 0:
                    words["sidesite"] = sys.sites.names[point.side_site]
                add_element(element, "geom", words)


def _attributes(sys: System, tendon: int) -> dict:
    tendons = sys.tendons
    out = {
        "name": tendons.names[tendon],
        "limited": tendons.limited[tendon],
        "range": tendons.range[tendon],
        "margin": tendons.limit_margin[tendon],
        "solreflimit": tendons.limit_solref[tendon],
        "solimplimit": tendons.limit_solimp[tendon],
        "stiffness": np.r_[tendons.stiffness[tendon], tendons.stiffness_poly[tendon]],
        "damping": np.r_[tendons.damping[tendon], tendons.damping_poly[tendon]],
        "armature": tendons.armature[tendon],
        "frictionloss": tendons.frictionloss[tendon],
        "solreffriction": tendons.friction_solref[tendon],
        "solimpfriction": tendons.friction_solimp[tendon],
        "actuatorfrclimited": tendons.actuator_force_limited[tendon],
        "actuatorfrcrange": tendons.actuator_force_range[tendon],
    }
    if not tendons.rests_at_reference[tendon]:
        out["springlength"] = tendons.spring_length[tendon]
    return out
