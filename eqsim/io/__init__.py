"""Input and output: MJCF files, save and load. MuJoCo is imported when an MJCF file is
read."""

from ._save import load as load, save as save
from .mjcf import (
    load_mjcf as load_mjcf,
    support_table as support_table,
    UnsupportedMJCF as UnsupportedMJCF,
    write_mjcf as write_mjcf,
)
