import gc
import pathlib
import zlib

import hypothesis
import jax
import jax.random as jr
import pytest


# Tracing makes millions of objects that live on: looking through them takes long.
gc.freeze()
gc.set_threshold(100_000, 20, 20)

# What a shape or a type promotes to silently is a mistake more often than not.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Read from and written to the folder in JAX_COMPILATION_CACHE_DIR, if there is one.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)

# The same examples in every run. No deadline, as most of the time is compilation.
hypothesis.settings.register_profile(
    "eqsim", derandomize=True, deadline=None, database=None, max_examples=20
)
hypothesis.settings.register_profile(
    "quick", hypothesis.settings.get_profile("eqsim"), max_examples=5
)
hypothesis.settings.load_profile("eqsim")


def pytest_configure(config):
    """Draw fewer examples where slow tests are left out."""
    if config.option.markexpr == "not slow":
        hypothesis.settings.load_profile("quick")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark the cases as slow that a marker `quick_cases` does not name."""
    named, found = {}, {}
    for item in items:
        marker = item.get_closest_marker("quick_cases")
        if marker is not None:
            test = item.nodeid.partition("[")[0]
            named[test] = {*marker.args}
            found.setdefault(test, set()).add(item.callspec.id)
            if item.callspec.id not in marker.args:
                item.add_marker(pytest.mark.slow)
            elif item.get_closest_marker("slow"):
                message = (
                    "is named by `quick_cases` and marked slow. Remove one of both."
                )
                raise pytest.UsageError(f"{item.nodeid} {message}")
    if any("::" in argument for argument in config.args):
        return  # Of a test that is named with its case, other cases are not collected.
    for test, cases in named.items():
        if unknown := cases - found[test]:
            message = f"`quick_cases` of {test} names no case: {sorted(unknown)}."
            raise pytest.UsageError(f"{message} Choose from {sorted(found[test])}.")


@pytest.fixture
def getkey(request):
    """Random keys that depend on the name of the test, and on nothing else."""
    key = jr.key(zlib.crc32(request.node.name.encode()))

    def next_key():
        nonlocal key
        key, out = jr.split(key)
        return out

    return next_key


# Linux lets a process map 65,530 pieces of memory, and a compiled program takes dozens:
# beyond that, XLA aborts the process.
_MOST_MAPPINGS = 15_000


@pytest.fixture(autouse=True, scope="module")
def drop_programs():
    """Drops compiled programs after a file of tests, when there are many."""
    yield
    mappings = pathlib.Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > _MOST_MAPPINGS:
        jax.clear_caches()
