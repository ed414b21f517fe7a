"""Input and output: MJCF files, save and load. MuJoCo is imported when an MJCF file is
read."""

from ._arrays import (
    Arrays as Arrays,
    open_arrays as open_arrays,
    read_array as read_array,
)
from ._save import load as load, save as save
from .mjcf import (
    load_mjcf as load_mjcf,
    support_table as support_table,
    UnsupportedMJCF as UnsupportedMJCF,
    write_mjcf as write_mjcf,
)
