"""The conformance kit as a pytest plugin: `pytest --eqsim-plugins=NAME`.

A separate package, so that pytest can load it without importing eqsim and JAX: tests
may configure them first, and runs that do not use the plugin are not slowed down.
"""

import difflib
from collections.abc import Iterator
from typing import Any

import pytest


_KINDS = {"envs": "ENVS", "pipelines": "PIPELINES", "agents": "AGENTS"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("eqsim").addoption(
        "--eqsim-plugins",
        default="",
        metavar="NAME[,NAME]",
        help="also run the conformance checks of these installed environments, pipelines "
        "and agents; `package:name` chooses between packages, and `all` stands for "
        "those of all packages but eqsim itself",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the checks, before names and marks select tests."""
    asked = str(config.getoption("--eqsim-plugins")).split(",")
    asked = [name.strip() for name in asked if name.strip()]
    if asked:
        for kind, name in _chosen(asked):
            node = _Plugin.from_parent(
                session, name=name, nodeid=f"eqsim-plugins::{kind}::{name}", kind=kind
            )
            items.extend(node.collect())


def _registries() -> dict[str, Any]:
    import eqsim

    return {kind: vars(eqsim)[name] for kind, name in _KINDS.items()}


def _chosen(asked: list[str]) -> list[tuple[str, str]]:
    """Return kinds and names of the requested plugins, without duplicates."""
    registries, chosen = _registries(), []
    for name in asked:
        found = []
        for kind, registry in registries.items():
            plugins = registry.plugins()
            if name == "all":
                foreign = (n for n in registry.names() if _is_foreign(n, plugins))
                found += [(kind, n) for n in foreign]
            elif name in plugins or name in registry.names():
                found.append((kind, name))
        if not found and name != "all":
            raise pytest.UsageError(_unknown(name, registries))
        chosen += found
    return list(dict.fromkeys(chosen))


def _is_foreign(name: str, plugins: dict) -> bool:
    return name not in plugins or plugins[name].package != "eqsim"


def _unknown(name: str, registries: dict[str, Any]) -> str:
    known = sorted({n for registry in registries.values() for n in registry.names()})
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return (
        f"--eqsim-plugins: no environment, pipeline or agent {name!r} is installed.{hint} "
        f"Known: all, {', '.join(known)}."
    )


class _Plugin(pytest.Collector):
    """A plugin, collected as the checks of its object."""

    def __init__(self, *, kind: str, **options: Any):
        super().__init__(**options)
        self.kind = kind

    def collect(self) -> Iterator[pytest.Item]:
        """Collect one test per check; if the object cannot be created, one failing
        test."""
        from eqsim import testing
        from eqsim.testing import _check, _parametrize

        try:
            target = _registries()[self.kind].get(self.name)
            subject = target()
            checks = tuple(_checks(testing, self.kind)(subject, build=target))
            expected = _check.expected_of(subject, checks, {})
        except Exception as error:
            yield self._item("load", _raising(error))
            return
        for check in checks:
            item = self._item(check.name, _parametrize.skipping(check).run)
            for mark in _parametrize.xfail_marks(check, expected):
                item.add_marker(mark)
            yield item

    def _item(self, name: str, function: Any) -> "_Item":
        return _Item.from_parent(self, name=name, function=function)


def _checks(testing: Any, kind: str) -> Any:
    return {
        "envs": testing.env_checks,
        "pipelines": testing.pipeline_checks,
        "agents": testing.agent_checks,
    }[kind]


def _raising(error: Exception) -> Any:
    def fail() -> None:
        raise error

    return fail


class _Item(pytest.Item):
    """One check."""

    def __init__(self, *, function: Any, **options: Any):
        super().__init__(**options)
        self.function = function

    def runtest(self) -> None:
        """Run the check."""
        self.function()

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Return the message of a failed check, without its traceback."""
        if excinfo.errisinstance(AssertionError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple:
        """Return the location shown in the terminal."""
        return self.path, None, self.nodeid
