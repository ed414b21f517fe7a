# `make demo` and `make test` need Python 3.11 with pip, and nothing else that is installed.

PYTHON ?= python3.11
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin
# The extras of all commands that check: installed by one call.
TOOLS := $(VENV)/.installed-test,docs
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SETUP := pyproject.toml zoo/pyproject.toml constraints.txt

# A compiled program is kept between the tests of a run, and between runs.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export EQSIM_KERNELS_CACHE ?= $(CURDIR)/.cache/kernels
# A test runs most programs once: they are compiled to the same operations, less tuned, in
# half the time. `test-all` compiles as users do.
UNTUNED := --xla_backend_optimization_level=0
# Each in one piece: programs of tests are too small to be compiled by several threads.
SMALL := --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
QUICK := XLA_FLAGS="$(UNTUNED) $(SMALL)" EQSIM_KERNELS_LEVEL=0
# The compiler allocates much and frees it at once: let it keep the memory.
export MALLOC_TRIM_THRESHOLD_ := 1000000000
export MALLOC_TOP_PAD_ := 64000000
export MALLOC_MMAP_THRESHOLD_ := 1000000000
# Pyright is pinned, and runs on the Node of its own wheel: it fetches nothing.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
# Those whose tests take longest come first.
PLUGINS := torchrl mjx dmc adapters gymnasium playground locomotion example evosax

.PHONY: help demo test test-all test-plugins test-plugins-all wheels check bench docs docs-tables format clean
.PHONY: fuzz situations release oldest newest soak

help:
	@echo "make demo             install, then run the demonstration (two to three minutes on 2 cores); results in out/demo"
	@echo "make test             install, then lint, types, layers and the quick tests"
	@echo "make test-all         the same with the slow tests, and wheels"
	@echo "make test-plugins     install the plugins, then run their quick tests"
	@echo "make test-plugins-all the same with their slow tests"
	@echo "make wheels           install eqsim and a plugin from wheels, run both, and remove the plugin"
	@echo "make release          build all distributions twice, compare, check, install and run each; files in out/release"
	@echo "make oldest           nightly: tests with the oldest dependencies that pyproject.toml allows"
	@echo "make newest           nightly: tests with the newest dependencies; PYTHON=python3.13 and WITHOUT=NAMES choose"
	@echo "make fuzz             run 100,000 generated inputs; FUZZ=1000000 and FUZZ_FIRST=0 choose others"
	@echo "make situations       nightly: 240 situations in which users stumble; SEED=1 chooses others"
	@echo "make soak             nightly: SOAK minutes of steps, and training that is interrupted; numbers in out/soak"
	@echo "make bench            install the peers, then run the benchmarks; results in out/bench"
	@echo "make docs             install, then build the site of the documentation; results in out/site"
	@echo "make docs-tables      write all tables that nobody writes by hand as Markdown; results in out/tables"
	@echo "make format           sort imports and format"
	@echo "make clean            remove the environment, the caches and the results"

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	@touch $@

# One stamp per list of extras: a second call installs nothing. What is imported is compiled
# then, in as many processes as there are tests, and the rest of the packages never.
$(VENV)/.installed-%: $(VENV)/.created $(SETUP)
	$(PIP) install --no-compile --constraint constraints.txt --editable ".[$*]" --editable zoo
	@touch $@

demo: $(VENV)/.installed-demo
	$(BIN)/python docs/examples/demo.py --out out/demo

check: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo

# Pyright takes one core, and the documentation another one.
test: $(TOOLS)
	$(MAKE) --jobs $(WORKERS) check docs
	$(QUICK) $(BIN)/pytest -q -n $(WORKERS) --dist worksteal --durations 25 -m "not slow"

# The plugins in an environment of their own, which tests of eqsim do not see.
$(VENV)-plugins/.installed: $(SETUP) $(wildcard plugins/*/pyproject.toml)
	$(PYTHON) -m venv $(VENV)-plugins
	$(VENV)-plugins/bin/python -m pip --disable-pip-version-check --quiet install \
	  --no-compile --constraint constraints.txt pytest-xdist --editable ".[cli,testing]" --editable zoo \
	  --editable "plugins/eqsim-adapters[brax,dm-env,test]" \
	  $(foreach name,$(filter-out adapters,$(PLUGINS)),--editable "plugins/eqsim-$(name)[test]")
	@# Of `playground` the model files alone are used, and nothing of it is imported.
	$(VENV)-plugins/bin/python -m pip --disable-pip-version-check --quiet install \
	  --no-compile --constraint constraints.txt --no-deps playground
	@touch $@

# $(call in-plugins,OPTIONS): pytest in the folder of each plugin, several plugins at a time
# and each in one process, which compiles a robot once for all its tests. Some tests compare
# two programs bit by bit, which tuned ones are not: all are compiled as in `test`.
define in-plugins
mkdir -p out/plugins
printf '%s\n' $(PLUGINS) | xargs -P $(WORKERS) -I NAME sh -c '(cd plugins/eqsim-NAME && \
  $(QUICK) $(abspath $(VENV))-plugins/bin/pytest -q $(1)) >out/plugins/NAME.txt 2>&1; \
  status=$$?; echo eqsim-NAME; cat out/plugins/NAME.txt; exit $$status'
endef

test-plugins: $(VENV)-plugins/.installed
	$(call in-plugins,-m "not slow")

test-plugins-all: $(VENV)-plugins/.installed
	$(call in-plugins)

# Tools that build and check distributions; none of them is used by eqsim.
$(VENV)-release/.installed: constraints.txt
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip --disable-pip-version-check --quiet install \
	  --constraint constraints.txt build hatchling packaging twine
	@touch $@

# From wheels in a fresh environment: a package of a third party comes, runs, and goes.
wheels: $(VENV)-release/.installed
	$(VENV)-release/bin/python tests/release/release.py --out out/wheels --only eqsim eqsim-example

release: $(VENV)-release/.installed
	$(VENV)-release/bin/python tests/release/release.py

# Newer versions of jaxlib refuse the flags of `SMALL`. Distributions whose
# dependencies have no files for a version of Python are left out by WITHOUT.
oldest newest: $(VENV)-release/.installed
	XLA_FLAGS="$(UNTUNED)" EQSIM_KERNELS_LEVEL=0 $(VENV)-release/bin/python tests/release/bounds.py $@ --python $(PYTHON) \
	  --workers $(WORKERS) $(if $(WITHOUT),--without $(WITHOUT))

test-all: check
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal
	$(MAKE) wheels

# Reproducible: a seed gives an input. Other seeds each night, for instance by the day.
FUZZ ?= 100000
FUZZ_FIRST ?= 0
fuzz: $(TOOLS)
	EQSIM_FUZZ=$(FUZZ) EQSIM_FUZZ_FIRST=$(FUZZ_FIRST) $(BIN)/pytest -q -n $(WORKERS) \
	  --dist worksteal tests/fuzz

SEED ?= 0
situations: $(TOOLS)
	$(BIN)/python tests/situations --count 240 --seed $(SEED)

# Minutes of steps, and number of interruptions.
SOAK ?= 60
soak: $(TOOLS)
	$(BIN)/python tests/soak steps --minutes $(SOAK)
	$(BIN)/python tests/soak training --interruptions 50

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/step.py --out out/bench
	$(BIN)/python benchmarks/gradient.py --out out/bench
	$(BIN)/python benchmarks/compile.py --out out/bench

# Warnings are errors: links to pages or headings that do not exist, pages that no menu shows.
docs: $(TOOLS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

docs-tables: $(TOOLS)
	$(BIN)/python docs/tables.py

format: $(TOOLS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(VENV)-plugins $(VENV)-release .cache .hypothesis .import_linter_cache .pytest_cache .ruff_cache out
