"""Input and output: MJCF files, save and load. MuJoCo is imported when an MJCF file is
read."""

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
    write_mjcf as write_mjcf,
)
