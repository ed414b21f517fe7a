"""The command `eqsim control`."""

import json

import numpy as np
import pytest
from opengl import needs_opengl
from PIL import Image

from eqsim._cli import main


def run(capsys, *argv):
    status = main(argv)
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.mark.parametrize("solver", ("ilqr", "cem"))
@pytest.mark.quick_cases("cem")
def test_writes_a_plan(solver, capsys, tmp_path):
    """The plan is better than its first guess; the page needs no other file."""
    file = tmp_path / "new" / "plan"
    options = "--horizon", "10", "--steps", "5", "--samples", "16", "--out", str(file)
    status, out, err = run(capsys, "control", "reacher", "--solver", solver, *options)
    assert status == 0, err
    report = json.loads(file.with_suffix(".json").read_text())
    assert report["cost"] < report["before"]
    with np.load(file.with_suffix(".npz"), allow_pickle=False) as arrays:
        assert arrays["q"].shape[0] == 11 and arrays["actions"].shape == (10, 2)
        assert np.all(np.abs(arrays["actions"]) <= 1.0)
        np.testing.assert_allclose(arrays["rewards"].sum(), report["return"], rtol=1e-5)
        assert ("gains" in arrays) == (solver == "ilqr")
    page = file.with_suffix(".html").read_text()
    assert "data:image/png;base64," in page and 'src="http' not in page
    assert str(report["result"]) in page
    assert "plan.html" in out


@needs_opengl
@pytest.mark.slow  # Compiles once more, for pictures.
def test_picture(capsys, tmp_path):
    file = tmp_path / "plan"
    options = "--solver", "mppi", "--horizon", "3", "--steps", "1", "--samples", "4"
    status, _, err = run(
        capsys, "control", "reacher", *options, "--picture", "--out", str(file)
    )
    assert status == 0, err
    with Image.open(file.with_suffix(".gif")) as image:
        assert image.n_frames == 4


def test_errors(capsys):
    status, _, err = run(capsys, "control", "reachr")
    assert status == 2 and "Did you mean 'reacher'" in err
    status, _, err = run(capsys, "control", "reacher", "--horizon", "0")
    assert status == 2 and "`--horizon` must be at least 1, got 0" in err
    status, _, err = run(capsys, "control", "reacher", "--contact", "-1")
    assert status == 2 and "`--contact` must be at least 0, got -1.0" in err
    status, _, err = run(
        capsys, "control", "reacher", "--pipeline", "spring", "--contact", "0.01"
    )
    assert status == 2 and "`Generalized`" in err
