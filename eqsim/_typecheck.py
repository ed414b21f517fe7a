"""Run-time checks of shapes and types of all arguments and results of the library.

Only modules imported after this one are checked. The kernel compiler is excluded: it
takes no arrays, and calls its functions millions of times.
"""

import pathlib
import pkgutil

from jaxtyping import install_import_hook


_names = {
    module.name for module in pkgutil.iter_modules([str(pathlib.Path(__file__).parent)])
}
install_import_hook(
    [f"eqsim.{name}" for name in sorted(_names - {"_kernels"})], "beartype.beartype"
)
