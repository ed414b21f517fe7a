"""Every public name has a docstring, and is written once."""

import enum
import importlib
import inspect
import pkgutil

import pytest

import eqsim


def _packages():
    yield "eqsim_zoo"
    yield "eqsim"
    for module in pkgutil.walk_packages(eqsim.__path__, "eqsim."):
        if module.ispkg and "._" not in module.name:
            yield module.name


def _public(module):
    return {k: v for k, v in vars(module).items() if not k.startswith("_")}


def _own_docstring(value):
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    # A dataclass without docstring is given its signature as one.
    generated = inspect.isclass(value) and (text or "").startswith(f"{value.__name__}(")
    return None if generated else text


def _members(cls):
    """Methods and properties that a class defines, and that no base has described."""
    for name in vars(cls):
        value = getattr(cls, name)
        is_member = inspect.isroutine(value) or isinstance(value, property)
        bases = [getattr(base, name, None) for base in cls.__bases__]
        described = any(base is not None and base.__doc__ for base in bases)
        if is_member and not name.startswith("_") and not described:
            yield name, value


@pytest.mark.parametrize("package", list(_packages()))
def test_docstrings(package):
    module = importlib.import_module(package)
    assert module.__doc__, f"{package} has no docstring"
    missing = []
    for name, value in _public(module).items():
        ours = inspect.isclass(value) or inspect.isroutine(value)
        if not ours or not value.__module__.startswith("eqsim"):
            continue
        if not _own_docstring(value):
            missing.append(name)
        if inspect.isclass(value) and not issubclass(value, enum.Enum):
            members = _members(value)
            missing += [f"{name}.{k}" for k, member in members if not member.__doc__]
    assert not missing, f"No docstring in {package}: {missing}"


def test_names_are_public_objects_of_eqsim():
    """A name that is visible by accident, such as `os`, would become an interface."""
    # The last is put there by the type-check hook of the tests.
    allowed = {"importlib", "os", "jaxtyping"}
    for name, value in _public(eqsim).items():
        home = value.__name__ if inspect.ismodule(value) else type(value).__module__
        home = value.__module__ if inspect.isclass(value) else home
        home = value.__module__ if inspect.isroutine(value) else home
        assert name in allowed or home.split(".")[0] == "eqsim", name
