"""The families of docs/derivatives.md: forward mode = reverse mode = differences."""

import numpy as np
import pytest
from parity.derivative_families import FAMILIES, tabulate
from parity.derivatives import Found

from eqsim import PIPELINES


# One with every sort of actuator state; the others run before a pull request.
QUICK = {("laws", "generalized")}


def cases():
    for name, family in FAMILIES.items():
        for pipeline in family.pipelines:
            slow = [] if (name, pipeline) in QUICK else [pytest.mark.slow]
            yield pytest.param(name, pipeline, marks=slow, id=f"{name}-{pipeline}")


@pytest.mark.parametrize(("name", "pipeline"), [*cases()])
def test_family(name, pipeline):
    """Everywhere but at few kinks, where both modes agree and are finite."""
    found = tabulate(FAMILIES[name], PIPELINES.get(pipeline)()).found
    bent = [x for x in found if not x.smooth]
    # Substeps end pieces of the model more often than one converged solve.
    most = 0.01 if pipeline == "generalized" else 0.03
    assert len(bent) <= most * len(found), bent
    for x in found:
        assert x.error <= 2e-5 or not x.smooth, x
        assert x.reverse <= 1e-8 * (1.0 + x.size), x


def found(size, forward, bend):
    return Found("", "", size, forward, 0.0, bend)


def test_kinks():
    """Differences are no reference where the slopes to the two sides differ by as much;
    large curvature, or a number that is not finite, is no excuse."""
    assert not found(1.0, 0.1, 0.2).smooth
    assert found(1.0, 0.1, 0.01).smooth
    assert found(1.0, 1e-6, 0.2).smooth
    assert found(1.0, np.inf, 1.0).smooth and found(1.0, np.inf, np.inf).smooth
    assert found(1.0, np.inf, 1.0).error == np.inf
