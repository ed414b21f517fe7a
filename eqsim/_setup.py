"""What importing eqsim sets up: type checks if `EQSIM_TYPECHECK` is set, and copies.

*Type checks* look at the shapes and types of all arguments and results of the library. Only
modules imported after this one are checked. The kernel compiler is excluded: it takes no
arrays, and calls its functions millions of times.

*Copies.* Equinox marks a field that an object does not set with a sentinel, compared by
identity. The structure (`PyTreeDef`) of every module contains it, and so does a function
compiled by `eqx.filter_jit`. `pickle` and `copy.deepcopy` would make a second sentinel, and
calling the copy would fail with "'_Missing' object is not subscriptable". The sentinel is
registered with `copyreg`, so that a copy refers to the original.
"""

import copyreg
import os
import pathlib
import pkgutil


try:
    from equinox._module._flatten import MISSING
except ImportError:
    # The sentinel is private: other versions of Equinox may have none.
    pass
else:
    copyreg.pickle(type(MISSING), lambda _: "MISSING")


def _check_types() -> None:
    from jaxtyping import install_import_hook

    folder = str(pathlib.Path(__file__).parent)
    names = {module.name for module in pkgutil.iter_modules([folder])}
    checked = [f"eqsim.{name}" for name in sorted(names - {"_kernels"})]
    install_import_hook(checked, "beartype.beartype")


if os.environ.get("EQSIM_TYPECHECK", "0") not in ("", "0"):
    _check_types()
