"""Metadata of packages that publish plugins, and modules that misbehave."""

import sys
from random import Random

from eqsim import AGENTS, ENVS, PIPELINES
from eqsim.plugins import PluginError, Registry

from .mutations import damaged, word


_MODULES = (
    "raise RuntimeError('no')",
    "import no_such_module_at_all",
    "raise SystemExit(3)",
    "x = 1 +",
    "import eqsim\nclass Env(eqsim.AbstractEnv):\n    pass",
    "Env = 3",
    "class Env: pass",
    "def Env(): return None",
    "Env = None",
    "__eqsim_api__ = '99'\ndef Env(): pass",
    "__eqsim_api__ = '1.99'\ndef Env(): pass",
    "__eqsim_api__ = object()\ndef Env(): pass",
    "def __getattr__(name): raise KeyError(name)",
    "def __getattr__(name): raise BaseException('odd')",
    "class E(Exception):\n    def __str__(self): raise ValueError('worse')\nraise E",
    "class E(Exception):\n    def __str__(self): return None\nraise E",
    "raise type('E', (BaseException,), {})('base')",
    "class M(type):\n    def __subclasscheck__(c, x): raise KeyError\nclass Env(metaclass=M): pass",
    "class Env:\n    @property\n    def __class__(self): raise KeyError\nEnv = Env()",
    "import sys\nsys.modules[__name__] = None",
    "import sys\ndel sys.modules[__name__]\nEnv = 3",
    "Env = type('Env', (), {'__call__': 3})()",
    "raise RecursionError",
    "def f(): f()\nf()",
    "raise RuntimeError('x' * 10**6)",
    "import warnings\nwarnings.warn('w')\nraise ImportError",
    "",
    "\0",
)
_TARGETS = tuple(
    """
    {m}:Env {m}:Env {m}:Env {m} {m}: :Env {m}:Env.x ..{m}:Env .{m}:Env os:system
    {m}:__import__ {m}:Env[ eqsim:make builtins:None antigravityx:x {m}.sub:Env
    1:2
    """.split()
)
_TARGETS += (
    "{m} : Env [extra]",
    "{m}:Env Env",
    "a b:c",
    "",
)
_NAMES = tuple(
    """
    good a:b [x] ant = #c %(x)s
    """.split()
)
_NAMES += (
    "odd name",
    "",
    "é",
    "x" * 500,
)
_GROUPS = tuple(
    """
    eqsim.envs eqsim.envs eqsim.agents eqsim.pipelines eqsim.commands
    """.split()
)


class Kind:
    """Law: a registry lists names without an exception, and `get` returns an object or
    raises `PluginError` or `ValueError`."""

    REFUSALS = (PluginError, ValueError)
    WRITES = None

    def __init__(self, folder):
        self.folder, self.count = folder / "here", 0
        self.site = self.folder / "site"
        self.site.mkdir(exist_ok=True)
        sys.path.append(str(self.site))
        assert ENVS.names() and AGENTS.names() and PIPELINES.names()

    def attempt(self, rng: Random):
        self.count += 1
        module = f"fuzzed_{self.count}"
        # A new folder: the path finder caches what folders contain.
        site = self.site / module
        info = site / rng.choice(
            (
                f"{module}-1.0.dist-info",
                f"{module}.egg-info",
                "x.dist-info",
                "-.dist-info",
            )
        )
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(rng.choice(_MODULES))
        group = rng.choice(_GROUPS)
        (info / "entry_points.txt").write_bytes(_points(rng, module, group))
        if rng.random() < 0.9:
            (info / "METADATA").write_bytes(_metadata(rng, module))
        sys.path.append(str(site))
        before = {*sys.modules}
        try:
            return _use(rng, group, site)
        finally:
            sys.path.remove(str(site))
            for name in {*sys.modules} - before:
                if name.startswith("fuzzed_"):
                    del sys.modules[name]


def _use(rng: Random, group: str, site) -> str:
    registry = Registry(group, [site])
    names, refusals = registry.names(), []
    for name in {*names, *registry.plugins(), *registry.hidden()}:
        plugin = registry.plugins().get(name)
        if plugin is not None:
            plugin.malformed()
        try:
            registry.get(name)
        except (PluginError, ValueError) as error:
            refusals.append(str(error))
            assert len(str(error)) < 60_000, "long message"
    try:
        registry.get(word(rng))
    except ValueError as error:
        assert " " in str(error)
    assert registry.names() == names
    registry.errors()
    return "; ".join(refusals)[:1000]


def _points(rng: Random, module: str, group: str) -> bytes:
    lines = [f"[{group}]"]
    for _ in range(rng.choice((1, 1, 2, 3))):
        target = rng.choice(_TARGETS).format(m=module)
        name = rng.choice(_NAMES) if rng.random() < 0.5 else "good"
        lines.append(f"{name}{rng.choice((' = ', '=', ' : ', ''))}{target}")
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines) + 1), word(rng)[:200])
    if rng.random() < 0.1:
        lines += lines
    text = "\n".join(lines).encode(errors="surrogatepass")
    return damaged(rng, text) if rng.random() < 0.25 else text


def _metadata(rng: Random, module: str) -> bytes:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {module}",
        "Version: 1.0",
        "Summary: A b.",
    ]
    if rng.random() < 0.4:
        lines[rng.randrange(4)] = rng.choice(
            ("Name:", "Version: ", word(rng), "Name: é")
        )
    text = "\n".join(lines).encode(errors="surrogatepass")
    return damaged(rng, text) if rng.random() < 0.3 else text
