# make demo: export a real network and check it.  make test: everything that must hold.
# Needs CPython 3.11, pip and make; all else goes into .venv, once.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/.installed
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint types pytest fuzz benchmark clean

demo: $(INSTALLED)
	$(BIN)/python docs/examples/demo.py

test: lint types pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .

# What is checked is an installed copy: mypy does not see that decompositions/ is fx_onnx.decompositions.
types: $(INSTALLED)
	rm -rf build/lib build/bdist.* build/installed
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --target build/installed .
	cd build/installed && ../../$(BIN)/mypy --strict --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache fx_onnx

pytest: $(INSTALLED)
	$(BIN)/pytest -n 2

N ?= 1000
fuzz: $(INSTALLED)
	$(BIN)/python -m tests.fuzz --count $(N)

benchmark: $(INSTALLED)
	$(BIN)/python -m benchmarks.export_time

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt setuptools -e '.[test]'
	touch $@

clean:
	rm -rf .venv build
