import importlib.metadata
import inspect
import sys
import warnings

import pytest

import eqsim
from eqsim._registry import PluginError, PluginWarning, Registry


GROUP = "eqsim.test_things"


def publish(folder, package, points, version="1.0", group=GROUP):
    """Writes what `pip install` leaves behind of a package's entry points."""
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir()
    lines = "".join(f"{name} = {target}\n" for name, target in points.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    )


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder from which Python imports, cleaned up afterwards."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_names_and_lazy_import(tmp_path, modules):
    (modules / "lazy_thing.py").write_text("class Box:\n    inner = 3\n")
    publish(tmp_path, "boxes", {"box": "lazy_thing:Box", "in": "lazy_thing:Box.inner"})
    registry = Registry(GROUP, [tmp_path])
    assert registry.names() == ("box", "in")
    assert "lazy_thing" not in sys.modules
    assert registry.get("box") is sys.modules["lazy_thing"].Box
    assert registry.get("in") == 3
    plugin = registry.plugins()["box"]
    assert (plugin.package, plugin.version) == ("boxes", "1.0")


def test_unknown_name_is_answered_with_the_closest(tmp_path):
    publish(tmp_path, "boxes", {"cartpole": "nowhere:Thing"})
    with pytest.raises(ValueError, match="Did you mean 'cartpole'"):
        Registry(GROUP, [tmp_path]).get("cartpol")
    with pytest.raises(ValueError, match="Known: nothing"):
        Registry("eqsim.empty", [tmp_path]).get("cartpol")


def test_a_broken_plugin_hides_no_other(tmp_path, modules):
    (modules / "broken_thing.py").write_text("raise RuntimeError('no license')\n")
    (modules / "good_thing.py").write_text("Good = 1\n")
    points = {
        "bad": "broken_thing:Bad",
        "gone": "not_there:X",
        "typo": "good_thing:God",
    }
    publish(tmp_path, "bad_plugin", points, version="2.3")
    publish(tmp_path, "good", {"good": "good_thing:Good"})
    registry = Registry(GROUP, [tmp_path])
    assert registry.names() == ("bad", "gone", "good", "typo")
    with pytest.raises(PluginError, match=r"bad-plugin 2\.3.*no license") as caught:
        registry.get("bad")
    assert isinstance(caught.value.__cause__, RuntimeError)
    for name in ("gone", "typo"):
        with pytest.raises(PluginError):
            registry.get(name)
    assert registry.get("good") == 1
    assert set(registry.errors()) == {"bad", "gone", "typo"}


def test_a_repaired_plugin_is_found_after_refresh(tmp_path, modules):
    publish(tmp_path, "late", {"late": "late_thing:Late"})
    registry = Registry(GROUP, [tmp_path])
    with pytest.raises(PluginError):
        registry.get("late")
    (modules / "late_thing.py").write_text("Late = 7\n")
    registry.refresh()
    assert registry.get("late") == 7
    assert registry.errors() == {}


def test_one_name_of_two_packages(tmp_path, modules):
    (modules / "two_things.py").write_text("A, B, Ours = 'a', 'b', 'ours'\n")
    publish(tmp_path, "zz_last", {"same": "two_things:B", "ant": "two_things:B"})
    publish(tmp_path, "aa_first", {"same": "two_things:A"})
    publish(tmp_path, "eqsim", {"ant": "two_things:Ours"})
    registry = Registry(GROUP, [tmp_path])
    with pytest.warns(PluginWarning) as caught:
        assert registry.names() == ("ant", "same")
    messages = sorted(str(warning.message) for warning in caught)
    for message, packages in zip(
        messages, ("eqsim and by zz-last", "aa-first and by zz")
    ):
        assert packages in message
    assert registry.get("same") == "a"
    assert registry.get("ant") == "ours"
    assert registry.get("zz-last:same") == registry.get("zz-last:ant") == "b"


@pytest.mark.parametrize(
    "malformed",
    (b"no section\n", b"[x]\na = b\na = c\n", b"[x]\nno equals\n", b"\xff"),
)
def test_a_malformed_file_of_another_package(tmp_path, modules, malformed):
    (modules / "sane_thing.py").write_text("Sane = 5\n")
    publish(tmp_path, "sane", {"sane": "sane_thing:Sane"})
    (tmp_path / "odd-1.0.dist-info").mkdir()
    (tmp_path / "odd-1.0.dist-info" / "entry_points.txt").write_bytes(malformed)
    registry = Registry(GROUP, [tmp_path])
    with pytest.warns(PluginWarning, match="could not (be )?read"):
        assert registry.names() == ("sane",)
    assert registry.get("sane") == 5
    assert registry.plugins()["sane"].package == "sane"


def test_register_at_run_time(tmp_path):
    publish(tmp_path, "boxes", {"box": "nowhere:Thing"})
    registry = Registry(GROUP, [tmp_path])
    registry.register("mine", 1)
    assert registry.get("mine") == 1
    assert registry.names() == ("box", "mine")
    for taken in ("mine", "box"):
        with pytest.raises(ValueError, match="already taken"):
            registry.register(taken, 2)
    registry.register("mine", 2, replace=True)
    assert registry.get("mine") == 2
    with pytest.raises(ValueError, match="no colon"):
        registry.register("a:b", 2)


def test_every_environment_and_pipeline_is_published():
    for registry, module, base in (
        (eqsim.ENVS, eqsim.envs, eqsim.AbstractEnv),
        (eqsim.PIPELINES, eqsim.pipelines, eqsim.AbstractPipeline),
    ):
        ours = [p for p in registry.plugins().values() if p.package == "eqsim"]
        found = {registry.get(plugin.name) for plugin in ours}
        published = {x for x in found if inspect.isclass(x)}
        public = (value for value in vars(module).values() if inspect.isclass(value))
        concrete = {c for c in public if issubclass(c, base)}
        assert published == {
            c for c in concrete if not c.__name__.startswith("Abstract")
        }
        assert registry.errors() == {}
        # The rest is made of these, by functions.
        makers = found - published
        assert all(vars(eqsim.wrappers)[make.__name__] is make for make in makers)


def test_the_installed_version_is_reported():
    assert eqsim.__version__ == importlib.metadata.version("eqsim")


def test_make():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in eqsim.ENVS.names():
            assert isinstance(eqsim.make(name), eqsim.AbstractEnv)
    by_name = eqsim.make("ant", pipeline="generalized")
    by_value = eqsim.make("ant", pipeline=eqsim.Generalized())
    assert type(by_name.pipeline) is type(by_value.pipeline) is eqsim.Generalized


def test_make_refuses_what_it_would_ignore():
    with pytest.raises(ValueError, match="Did you mean 'ant'"):
        eqsim.make("aunt")
    with pytest.raises(ValueError, match="Did you mean 'generalized'"):
        eqsim.make("ant", pipeline="generalised")
    with pytest.raises(
        TypeError, match="'ant' has no option 'pipelines'.*Did you mean"
    ):
        eqsim.make("ant", pipelines=1)
    with pytest.raises(TypeError):
        eqsim.make("ant", pipeline=eqsim.Generalized)
