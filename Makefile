# Each command is complete by itself: it makes its own virtual environment and installs what it needs.
PYTHON ?= python3
# The CUDA major whose wheels are used: 12 or 13. Each has an environment of its own.
CUDA ?= 12
# Processes that run tests beside each other: as many as there are processors.
JOBS ?= auto
VENV := .venv-cu$(CUDA)
RUN := $(VENV)/bin/python

.PHONY: demo test lint format clean

demo: $(VENV)/installed
	$(RUN) examples/cluster_reduce.py

test: $(VENV)/installed
	$(RUN) -m pytest --numprocesses $(JOBS) --dist worksteal $(ARGS)

lint: $(VENV)/installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: $(VENV)/installed
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

clean:
	rm -rf .venv-cu12 .venv-cu13 build dist .pytest_cache .mypy_cache .ruff_cache

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -e ".[cu$(CUDA),dev]"
	touch $@
