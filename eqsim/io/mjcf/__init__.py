"""Reading and writing of MJCF, MuJoCo's file format.

`_table` says which field of a `System` is which attribute of MJCF and which array of
MuJoCo; reading and writing follow it. `_load` is the entry: `sources` compiles a file, text
or model, `_support` refuses what is not supported, and `_read_bodies`, `_read_actuators` and
`_read_elements` convert MuJoCo's arrays to parts of a `System`. `_write` is the way back.
`mujoco_names` imports MuJoCo and names its elements.
"""

from ._load import load_mjcf as load_mjcf
from ._support import (
    support_table as support_table,
    UnsupportedMJCF as UnsupportedMJCF,
)
from ._write import write_mjcf as write_mjcf
from .sources import with_height_field as with_height_field
