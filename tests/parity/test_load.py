"""What `benchmarks/load.py` says of a file."""

import dataclasses
import json

import pytest
from _load_file import check_file, File, LOADS, NOT_COMPILED, REFUSED
from _load_report import page, report
from _motion import CLOSE, Motion
from _tables import circumstances


FILES = {
    "falls.xml": """
<mujoco><worldbody><geom type="plane" size="1 1 1"/>
  <body pos="0 0 .11"><freejoint/><geom size=".1"/></body></worldbody>
  <keyframe><key name="home" qpos="0 0 .1 1 0 0 0"/></keyframe></mujoco>""",
    "noslip.xml": '<mujoco><option noslip_iterations="2"/></mujoco>',
    "part.xml": "<mujocoinclude/>",
    "still.xml": '<mujoco><worldbody><geom size="1"/></worldbody></mujoco>',
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("robots")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return {name: check_file("tests", folder, name, 10) for name in FILES}


def test_outcomes(found):
    outcomes = {name: file.outcome for name, file in found.items()}
    assert outcomes == {
        "falls.xml": LOADS,
        "noslip.xml": REFUSED,
        "part.xml": NOT_COMPILED,
        "still.xml": LOADS,
    }
    assert found["noslip.xml"].ignore == ("noslip",)
    assert found["still.xml"].motion == "nothing moves"


def test_motion(found):
    motion = found["falls.xml"].motion
    assert isinstance(motion, Motion)
    assert motion.steps == 10 and motion.contacts == 1 and not motion.reason
    assert motion.local <= motion.largest + 1e-12 < CLOSE


def test_reports(found):
    files = list(found.values())
    text = report(files, named=True)
    assert "noslip solver" in text and "tests/falls.xml" in text
    assert "MuJoCo compiles 3 MJCF files" in page(files, circumstances())


def test_files_are_read_again(found):
    for file in found.values():
        data = json.loads(json.dumps(dataclasses.asdict(file)))
        assert File.read(data) == file
