# Each command is complete by itself: it makes its own virtual environment and installs what it needs.
PYTHON ?= python3
# The CUDA major whose wheels are used: 12 or 13. Each has an environment of its own.
CUDA ?= 12
# Processes that run tests beside each other: as many as there are processors.
JOBS ?= auto
VENV := .venv-cu$(CUDA)
RUN := $(VENV)/bin/python
# An environment of its own for the demo, which needs a tenth of what the tests need.
DEMO := .venv-demo-cu$(CUDA)
PYTEST := $(RUN) -m pytest --numprocesses $(JOBS) --dist worksteal
# What the tests import is compiled once, though the environment may say otherwise: tests are rewritten as they are loaded,
# which takes six seconds of every process.
unexport PYTHONDONTWRITEBYTECODE
COVERAGE := --cov --cov-report=term

.PHONY: demo check test test-rest test-all test-torch test-mpi test-site soak docs kernels lint format clean

demo: $(DEMO)/installed
	$(DEMO)/bin/python examples/cluster_reduce.py

# Tiers of tests: tests/tiers.py says what each runs, CONTRIBUTING.md how long it takes.
check: $(VENV)/installed
	$(PYTEST) --tier check tests/unit $(ARGS)

test: $(VENV)/installed
	$(PYTEST) --tier test $(ARGS)

# What test-all runs beyond test.
test-rest: $(VENV)/installed
	$(PYTEST) --tier rest $(ARGS)

# Of tests/unit it is also told which lines of the library they reach.
test-all: $(VENV)/installed
ifdef ARGS
	$(PYTEST) --tier all $(ARGS)
else
	$(PYTEST) --tier all $(COVERAGE) tests/unit
	$(PYTEST) --tier all --ignore tests/unit
endif

soak: $(VENV)/installed
	$(PYTEST) --tier soak $(ARGS)
	$(RUN) -m tests.soak
	$(RUN) -m tests.mutants

# Beside other libraries, each in an environment of its own, so that no other command installs PyTorch or an MPI.
test-torch: .venv-torch/installed
	.venv-torch/bin/python -m pytest tests/with_torch $(ARGS)

test-mpi: .venv-mpi/installed
	.venv-mpi/bin/python -m pytest tests/with_mpi $(ARGS)

# The wheel of compiled kernels, in dist: of the operators, types and architectures of lowlevel_reduce/kernel_wheel/choice.py.
# As many processes as there are processors compile it; what they made is kept in .cache, so that a build that was stopped
# goes on.
kernels: $(VENV)/installed
	$(RUN) -m lowlevel_reduce prebuild --wheel dist --into .cache/kernels-cu$(CUDA) $(ARGS)

# The site, into build/site; a warning is an error, and so is a link or an anchor that leads nowhere.
docs: .venv-docs/installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo build/site/index.html

# The site in a browser, if there is one on PATH.
test-site: .venv-site/installed
	.venv-site/bin/python -m pytest tests/with_site $(ARGS)

lint: $(VENV)/installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: $(VENV)/installed
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

clean:
	rm -rf .venv-cu12 .venv-cu13 .venv-demo-cu12 .venv-demo-cu13 .venv-torch .venv-mpi .venv-docs .venv-site .cache
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -e ".[cu$(CUDA),dev]"
	touch $@

$(DEMO)/installed: pyproject.toml
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[nvrtc$(CUDA)]"
	touch $@

.venv-torch/installed .venv-mpi/installed .venv-site/installed: .venv-%/installed: pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -e ".[cu12,test-$*]"
	touch $@

.venv-docs/installed: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@
