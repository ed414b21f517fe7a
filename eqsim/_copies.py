"""Copies of compiled functions and of PyTree structures.

Equinox marks a field that an object does not set with a sentinel, compared by identity.
The structure (`PyTreeDef`) of every module contains it, and so does a function compiled by
`eqx.filter_jit`. `pickle` and `copy.deepcopy` would make a second sentinel, and calling
the copy would fail with "'_Missing' object is not subscriptable". Importing this module
registers the sentinel with `copyreg`, so that a copy refers to the original.
"""

import copyreg


try:
    from equinox._module._flatten import MISSING
except ImportError:
    # The sentinel is private: other versions of Equinox may have none.
    pass
else:
    copyreg.pickle(type(MISSING), lambda _: "MISSING")
