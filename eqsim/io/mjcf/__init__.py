"""Reading and writing of MJCF, MuJoCo's file format."""

from ._load import load_mjcf as load_mjcf
from ._support import (
    support_table as support_table,
    UnsupportedMJCF as UnsupportedMJCF,
)
from ._write import write_mjcf as write_mjcf
