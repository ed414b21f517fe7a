"""Infos of single environments, and of vector environments: an array and a mask
`_<name>` for each name."""

from typing import Any

import numpy as np

from ._program import Report


def single_infos(report: Report) -> dict[str, Any]:
    """Return the infos of one environment: numbers and arrays."""
    infos = report.state_infos | report.step_infos
    return {
        name: float(x) if np.ndim(x) == 0 else np.array(x) for name, x in infos.items()
    }


def vector_infos(
    state_infos: dict[str, Any],
    step_infos: dict[str, Any],
    described: np.ndarray,
    acted: np.ndarray,
) -> dict[str, Any]:
    """Return infos of states for the environments that are `described`, and infos of
    steps for those that `acted`; zero for others. Names that no environment reports are
    left out."""
    infos: dict[str, Any] = {}
    for found, mask in ((state_infos, described), (step_infos, acted)):
        for name, values in found.items() if np.any(mask) else ():
            dtype = np.float64 if np.ndim(values) == 1 else None
            infos[name] = np.array(values, dtype)
            infos[name][~mask] = 0
            infos[f"_{name}"] = mask.copy()
    return infos


def final_infos(report: Report, done: np.ndarray) -> dict[str, Any]:
    """Return the final infos of the episodes that are `done`."""
    if not np.any(done):
        return {}
    obs = np.full(done.shape, None, object)
    for k in np.flatnonzero(done):
        obs[k] = np.array(report.final_obs[k])
    return {
        "final_obs": obs,
        "_final_obs": done.copy(),
        "final_info": vector_infos(report.final_infos, report.step_infos, done, done),
        "_final_info": done.copy(),
    }
