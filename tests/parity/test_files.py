"""Files that load move as in MuJoCo; others are refused by name, or named as broken."""

import dataclasses
import json

from parity.motion import (
    check_file,
    CLOSE,
    File,
    LOADS,
    Motion,
    NOT_COMPILED,
    REFUSED,
)


FILES = {
    "falls.xml": """
<mujoco><worldbody><geom type="plane" size="1 1 1"/>
  <body pos="0 0 .11"><freejoint/><geom size=".1"/></body></worldbody>
  <keyframe><key name="home" qpos="0 0 .1 1 0 0 0"/></keyframe></mujoco>""",
    "delayed.xml": '<mujoco><worldbody><body><joint name="j"/>'
    '<geom size=".1"/></body></worldbody><actuator><pid joint="j" kp="3" input="vel ff" '
    'delay=".1" nsample="9"/></actuator></mujoco>',
    "part.xml": "<mujocoinclude/>",
    "still.xml": '<mujoco><worldbody><geom size="1"/></worldbody></mujoco>',
}


def test_outcomes(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    found = {name: check_file("tests", tmp_path, name, 10) for name in FILES}
    outcomes = [file.outcome for file in found.values()]
    assert outcomes == [LOADS, REFUSED, NOT_COMPILED, LOADS]
    assert found["delayed.xml"].ignore == ("delay",)
    assert found["still.xml"].motion == "nothing moves"
    motion = found["falls.xml"].motion
    assert isinstance(motion, Motion)
    assert motion.steps == 10 and motion.contacts == 1 and not motion.reason
    assert motion.local <= motion.largest + 1e-12 < CLOSE
    for file in found.values():
        data = json.loads(json.dumps(dataclasses.asdict(file)))
        assert File.read(data) == file
