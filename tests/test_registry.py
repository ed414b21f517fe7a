import importlib.metadata
import inspect
import pathlib
import sys
import warnings

import pytest
from packages import GROUP, publish

import eqsim
from eqsim.plugins import PluginError, PluginWarning, Registry


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
    for name in ("Cartpole-v1", "CARTPOLE", "CartPol-v15"):
        with pytest.raises(ValueError, match="Did you mean 'cartpole'"):
            Registry(GROUP, [tmp_path]).get(name)
    with pytest.raises(ValueError, match="No names are known: install a package"):
        Registry("eqsim.empty", [tmp_path]).get("cartpol")
    with pytest.raises(ValueError, match="No names are known: install `eqsim-zoo`"):
        Registry("eqsim.agents", [tmp_path]).get("ppo")


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


MALFORMED = (b"no section\n", b"[x]\na = b\na = c\n", b"[x]\nno equals\n")


def test_malformed_files_of_unrelated_packages(tmp_path, modules):
    """They are ignored, without a warning."""
    (modules / "sane_thing.py").write_text("Sane = 5\n")
    publish(tmp_path, "sane", {"sane": "sane_thing:Sane"})
    for number, malformed in enumerate(MALFORMED):
        publish(tmp_path, f"aaa{number}", malformed)
        publish(tmp_path, f"zzz{number}", malformed)
    registry = Registry(GROUP, [tmp_path])
    assert registry.names() == ("sane",)
    assert registry.get("sane") == 5
    assert registry.plugins()["sane"].package == "sane"


def test_a_malformed_file_of_a_plugin(tmp_path):
    """That package is named, and the others are found."""
    publish(tmp_path, "sane", {"sane": "sane_thing:Sane"})
    publish(tmp_path, "odd-one", f"[{GROUP}]\nno equals\n".encode())
    publish(tmp_path, "worse", b"\xff\n")
    twice = f"[{GROUP}]\na = x:Y\n".encode() * 2
    publish(tmp_path, "worst", twice + b"no entry\n")
    with pytest.warns(PluginWarning, match="could not be read") as caught:
        assert Registry(GROUP, [tmp_path]).names() == ("sane",)
    messages = sorted(str(warning.message) for warning in caught)
    for name, message in zip(("odd-one", "worse", "worst"), messages, strict=True):
        assert f"'{name}'" in message


def test_a_key_twice_in_one_file(tmp_path, modules):
    """The last one counts, and it is said; other packages are not touched."""
    (modules / "twice_thing.py").write_text("One, Two = 1, 2\n")
    lines = "same = twice_thing:One\nother = twice_thing:One\nsame = twice_thing:Two\n"
    publish(tmp_path, "twice", f"[{GROUP}]\n{lines}".encode())
    publish(tmp_path, "sane", {"sane": "twice_thing:One"})
    registry = Registry(GROUP, [tmp_path])
    with pytest.warns(PluginWarning, match="'twice' name something twice"):
        assert registry.names() == ("other", "same", "sane")
    assert [registry.get(name) for name in registry.names()] == [1, 2, 1]


def test_a_percent_sign_and_letters_beyond_ascii(tmp_path, modules):
    (modules / "größe.py").write_text("Größe = 3\n", encoding="utf-8")
    publish(tmp_path, "signs", {"100%": "größe:Größe", "größe": "größe:Größe"})
    publish(tmp_path, "odd", {"odd": "100%s:X"})
    registry = Registry(GROUP, [tmp_path])
    assert registry.names() == ("100%", "größe", "odd")
    assert registry.get("100%") == registry.get("größe") == 3


def test_malformed_entries(tmp_path):
    """A target that cannot be parsed is an error on use; a name with a colon is left out."""
    publish(tmp_path, "my-odd", {"odd": "no module!", "a:b": "x:Y", "c": "x:Z"}, "0.3")
    registry = Registry(GROUP, [tmp_path])
    with pytest.warns(PluginWarning, match="'my-odd' have 'a:b'.*no colon"):
        assert registry.names() == ("c", "odd")
    with pytest.raises(PluginError, match=r"my-odd 0\.3.*'no module!'.*module:object"):
        registry.get("odd")
    assert "'no module!'" in registry.plugins()["odd"].malformed()


def test_hyphens_in_the_names_of_folders(tmp_path):
    """Neither is dropped, and names and versions are those of the packages."""
    for package in ("my-first", "my-second", "My_Third.part"):
        publish(tmp_path, package, {package[3:5]: "x:Y"}, "1.2")
    plugins = Registry(GROUP, [tmp_path]).plugins()
    found = {(p.name, p.package, p.version) for p in plugins.values()}
    assert found == {
        ("fi", "my-first", "1.2"),
        ("se", "my-second", "1.2"),
        ("Th", "my-third-part", "1.2"),
    }


def test_names_are_those_of_the_metadata(tmp_path):
    folder = publish(tmp_path, "real-name", {"box": "x:Y"}, "1.0")
    folder.rename(tmp_path / "other_name-9.9.dist-info")
    plugin = Registry(GROUP, [tmp_path]).plugins()["box"]
    assert (plugin.package, plugin.version) == ("real-name", "1.0")
    assert plugin.summary == "What real-name is."


def test_a_package_without_metadata(tmp_path):
    folder = publish(tmp_path, "bare", {"box": "x:Y"})
    (folder / "METADATA").unlink()
    publish(tmp_path, "sane", {"sane": "x:Y"})
    registry = Registry(GROUP, [tmp_path])
    assert registry.names() == ("box", "sane")
    with pytest.raises(PluginError, match="unknown unknown"):
        registry.get("box")


def test_the_first_package_on_the_path_counts(tmp_path):
    """As Python imports it; also if the first one no longer publishes anything."""
    for name, package, points in (
        ("a", "same", {"new": "x:New"}),
        ("b", "same", {"old": "x:Old"}),
        ("a", "empty", b""),
        ("b", "empty", {"gone": "x:Y"}),
    ):
        (tmp_path / name).mkdir(exist_ok=True)
        publish(tmp_path / name, package, points, "1.0" if name == "b" else "2.0")
    names = lambda *order: Registry(GROUP, [tmp_path / x for x in order]).names()
    assert names("a", "b") == ("new",)
    assert names("b", "a") == ("gone", "old")


def test_paths_of_any_type(tmp_path, monkeypatch):
    publish(tmp_path, "boxes", {"box": "x:Y"})
    monkeypatch.setattr(sys, "path", [*sys.path, pathlib.Path(tmp_path), None])
    assert Registry(GROUP).names() == ("box",)


def test_a_plugin_that_ends_python(tmp_path, modules):
    """`sys.exit` is an error of the plugin; an interruption is the user's."""
    (modules / "exit_thing.py").write_text("import sys\nsys.exit(3)\n")
    (modules / "stop_thing.py").write_text("raise KeyboardInterrupt\n")
    publish(tmp_path, "ends", {"exit": "exit_thing:X", "stop": "stop_thing:X"})
    registry = Registry(GROUP, [tmp_path])
    with pytest.raises(PluginError, match="SystemExit: 3") as caught:
        registry.get("exit")
    assert isinstance(caught.value.__cause__, SystemExit)
    with pytest.raises(KeyboardInterrupt):
        registry.get("stop")
    assert set(registry.errors()) == {"exit"}


@pytest.mark.parametrize(
    "body, words",
    (
        ("class E(BaseException): pass\nraise E('odd')", "E: odd"),
        ("def __getattr__(name): raise BaseException('odd')", "BaseException: odd"),
        (
            "class E(Exception):\n    def __str__(self): return None\nraise E",
            "its message cannot be read",
        ),
        ("raise RuntimeError('x' * 10**6)", "RuntimeError: x{2000} \\.\\.\\."),
    ),
)
def test_any_exception_of_a_plugin_is_one_error(tmp_path, modules, body, words):
    (modules / "raising_thing.py").write_text(body)
    publish(tmp_path, "raises", {"thing": "raising_thing:X"})
    with pytest.raises(PluginError, match=words) as caught:
        Registry(GROUP, [tmp_path]).get("thing")
    assert len(str(caught.value)) < 3000


def hiding(tmp_path, monkeypatch, allow):
    """The packages that can be used, and a registry."""
    for package in ("eqsim", "eqsim-zoo", "my-boxes", "other"):
        publish(tmp_path, package, {package[:2]: "json:dumps"})
    monkeypatch.delenv("EQSIM_PLUGINS", raising=False)
    if allow is not None:
        monkeypatch.setenv("EQSIM_PLUGINS", allow)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        registry = Registry(GROUP, [tmp_path])
        registry.names()
    names = (name for name in registry.plugins() if ":" in name)
    return sorted(name.partition(":")[0] for name in names), registry


@pytest.mark.parametrize(
    "allow, usable",
    (
        (None, "eqsim eqsim-zoo my-boxes other"),
        ("", "eqsim eqsim-zoo"),
        (" my.boxes , My_Boxes,", "eqsim eqsim-zoo my-boxes"),
    ),
)
def test_the_allow_list(tmp_path, monkeypatch, allow, usable):
    found, registry = hiding(tmp_path, monkeypatch, allow)
    assert found == usable.split()
    hidden = {plugin.package for plugin in registry.hidden().values()}
    assert hidden == {"eqsim", "eqsim-zoo", "my-boxes", "other"} - set(found)


def test_a_hidden_plugin_is_refused_by_name(tmp_path, monkeypatch):
    _, registry = hiding(tmp_path, monkeypatch, "other")
    assert "my" not in registry.names()
    for name in ("my", "my-boxes:my"):
        with pytest.raises(PluginError, match="`EQSIM_PLUGINS` .* my-boxes"):
            registry.get(name)
    monkeypatch.delenv("EQSIM_PLUGINS")
    with pytest.warns(PluginWarning, match="published by eqsim and by eqsim-zoo"):
        registry.refresh()
        assert registry.names() == ("eq", "my", "ot")


def declare(tmp_path, modules, version, on_module=False):
    """A registry with a plugin `box` that was written for a version of the API."""
    line = f"__eqsim_api__ = {version!r}\n"
    text = line + "def Box(): ...\n" if on_module else f"class Box:\n    {line}"
    (modules / "versioned_thing.py").write_text(text)
    publish(tmp_path, "my-boxes", {"box": "versioned_thing:Box"}, "0.7")
    return Registry(GROUP, [tmp_path])


def ours(shift=0, minor_shift=0):
    major, minor = map(int, eqsim.plugins.API_VERSION.split("."))
    return f"{major + shift}.{minor + minor_shift}"


@pytest.mark.parametrize("on_module", (False, True))
def test_api_versions(tmp_path, modules, on_module):
    registry = declare(tmp_path, modules, ours().split(".")[0], on_module)
    assert registry.get("box").__name__ == "Box"


@pytest.mark.parametrize("on_module", (False, True))
def test_newer_minor_version(tmp_path, modules, on_module):
    registry = declare(tmp_path, modules, ours(0, 1), on_module)
    with pytest.warns(PluginWarning, match="'box' of my-boxes 0.7.*Upgrade eqsim"):
        assert registry.get("box").__name__ == "Box"


@pytest.mark.parametrize(
    "version, words",
    (
        (ours(-1), f"my-boxes 0.7.*{ours()}.*Upgrade my-boxes"),
        (ours(1), f"my-boxes 0.7.*{ours()}.*Upgrade eqsim"),
        *((x, "`__eqsim_api__` is ") for x in (1, "", "one", "1.2.3", "1.")),
    ),
)
def test_refused_versions(tmp_path, modules, version, words):
    registry = declare(tmp_path, modules, version)
    with pytest.raises(PluginError, match=words):
        registry.get("box")
    assert set(registry.errors()) == {"box"}


KINDS = {
    "the_class: eqsim:Spring": "the class `Spring`, a pipeline, and not an environment",
    "the_class: eqsim:TimeLimit": "",
    "another: pathlib:Path": "the class `Path`, of none of our kinds",
    "module: json": "an object of type `module`",
    "maker: json:dumps": "",
}


@pytest.mark.parametrize("line", KINDS)
def test_what_is_published_is_of_the_right_kind(tmp_path, line):
    name, target = line.split(": ")
    publish(tmp_path, "kinds", {name: target}, group="eqsim.envs")
    registry = Registry("eqsim.envs", [tmp_path])
    if not KINDS[line]:
        assert callable(registry.get(name))
        return
    with pytest.raises(PluginError, match=f"kinds 1.0.*{KINDS[line]}.*AbstractEnv"):
        registry.get(name)


def test_kinds_at_run_time():
    with pytest.raises(TypeError, match="the class `Spring`, a pipeline"):
        eqsim.ENVS.register("jumping", eqsim.Spring)
    with pytest.raises(TypeError, match="an object of type `PointMass`"):
        eqsim.ENVS.register("jumping", eqsim.make("point_mass"))
    assert "jumping" not in eqsim.ENVS.names()
    with pytest.raises(ValueError, match="'spring'.*name of a pipeline"):
        eqsim.ENVS.get("spring")


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
    for name in ("1", "-", "", "_2"):
        with pytest.raises(ValueError, match="must contain a letter and no colon"):
            registry.register(name, 2)
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
        assert all(
            vars(eqsim.wrappers.skills)[make.__name__] is make for make in makers
        )


def test_the_installed_version_is_reported():
    assert eqsim.__version__ == importlib.metadata.version("eqsim")


def test_make():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for plugin in eqsim.ENVS.plugins().values():
            # Environments of others that are installed may need files that are not.
            if plugin.package == "eqsim":
                assert isinstance(eqsim.make(plugin.name), eqsim.AbstractEnv)
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
