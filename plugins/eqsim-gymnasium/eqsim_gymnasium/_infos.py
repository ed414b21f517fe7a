"""Infos of vector environments: an array and a mask `_<name>` for each name."""

from typing import Any

import numpy as np

from ._program import Report


def step_infos(
    terms: dict[str, np.ndarray],
    descriptor: np.ndarray | None,
    acted: np.ndarray,
    described: np.ndarray,
) -> dict[str, Any]:
    """Return reward terms and descriptors of environments that acted; zero for others.
    Names that no environment reports are left out."""
    infos = {}
    if np.any(acted):
        for name, values in terms.items():
            _add(infos, f"reward_{name}", np.array(values, np.float64), acted)
    if descriptor is not None and np.any(described):
        _add(infos, "descriptor", np.array(descriptor), described)
    return infos


def final_infos(report: Report, done: np.ndarray) -> dict[str, Any]:
    """Return the final infos of the episodes that are `done`."""
    if not np.any(done):
        return {}
    obs = np.full(done.shape, None, object)
    for k in np.flatnonzero(done):
        obs[k] = np.array(report.final_obs[k])
    info = step_infos(report.terms, report.final_descriptor, done, done)
    return {
        "final_obs": obs,
        "_final_obs": done.copy(),
        "final_info": info,
        "_final_info": done.copy(),
    }


def _add(infos: dict[str, Any], name: str, values: np.ndarray, mask: np.ndarray):
    values[~mask] = 0
    infos[name], infos[f"_{name}"] = values, mask.copy()
