"""Input and output: MJCF files, save and load.

`mjcf` reads and writes MuJoCo's file format, and `urdf` reads that of ROS; MuJoCo is imported
when a file is read. `_save` stores values, and of eqsim's own types the structure. Only the
command line and the packages above `pipelines` may import this one.
"""

from ._save import (
    Arrays as Arrays,
    load as load,
    open_arrays as open_arrays,
    read_array as read_array,
    save as save,
)
from .mjcf import (
    load_mjcf as load_mjcf,
    support_table as support_table,
    UnsupportedMJCF as UnsupportedMJCF,
    with_height_field as with_height_field,
    write_mjcf as write_mjcf,
)
from .urdf import load_urdf as load_urdf, Motors as Motors, Servos as Servos
