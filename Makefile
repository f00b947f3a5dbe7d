# make demo: export a network and verify it.
# make check: lint, types, the architecture and the tests of the files that changed, in under a minute. It ends with
# the number of statements of each folder.
# make test-core: the tests of the core's folders, those without rooms.
# make test: lint, types and all tests.
# make docs: build the documentation as a site, build/site/index.html.
# make dist: build the sdist and the wheel in dist/, check them, and export with each in an empty environment.
# make nightly: damaged files, random networks, branches and sizes, equal bytes, equal captures, the tests of the core
# without each room, whether the packages of users resolve together with fx_onnx, and one job for each runtime, such as
# nightly-qnn, which installs what it needs; webgpu needs Chromium. It takes hours.
# Needs CPython 3.11 or newer, pip and make. Everything else is installed once, into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/.installed
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# The branch with which make check compares.
BASE ?= main

# The tests that read the source of the whole package.
SOURCE_TESTS := tests/test_architecture.py tests/test_style.py tests/test_signatures.py

# The runtimes that the nightly jobs run, and all of these jobs.
RUNTIMES := openvino onnxruntime-web webgpu onnxruntime reference tract mnn iree
JOBS := $(RUNTIMES:%=nightly-%) nightly-tensorrt nightly-qnn nightly-genai nightly-sherpa nightly-lerobot \
	nightly-cuda nightly-tables

.PHONY: demo check test test-core lint types pytest docs dist nightly $(JOBS) fuzz benchmark clean

demo: $(INSTALLED)
	$(BIN)/python docs/examples/demo.py

check: lint types
	$(BIN)/pytest -n 2 $(SOURCE_TESTS) $$($(BIN)/python tools/changed_tests.py $(BASE))
	$(BIN)/python -m tools.size

test-core: $(INSTALLED)
	$(BIN)/pytest -n 2 $(SOURCE_TESTS) $$($(BIN)/python -m tools.core_tests)

test: lint types pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy checks a copy with the layout of an installation, where decompositions/ is fx_onnx/decompositions, and the calls
# that PyTorch documents as the code of a user.
types: $(INSTALLED)
	rm -rf build/installed
	mkdir -p build/installed
	cp -Rp fx_onnx build/installed/fx_onnx
	cp -Rp decompositions build/installed/fx_onnx/decompositions
	cp tests/documented_calls.py build/installed/
	cd build/installed && ../../$(BIN)/mypy --strict --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache fx_onnx documented_calls.py

pytest: $(INSTALLED)
	$(BIN)/pytest -n 2

# Strict: a broken link or anchor, or a page that the navigation lacks, is an error. The build needs no network.
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo build/site/index.html

.venv/.docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

# The environments are outside of the checkout's import path, so the examples run with the installed package.
dist: $(INSTALLED)
	rm -rf dist build/dist
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[release]'
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	for file in dist/*; do \
		$(PYTHON) -m venv --clear build/dist && build/dist/bin/python -m pip install --quiet "$$file" && \
		build/dist/bin/fx-onnx versions && PYTHONSAFEPATH=1 build/dist/bin/python docs/examples/demo.py || exit 1; \
	done

# What takes hours; each part goes on where it was stopped, or can be run alone.
nightly: $(INSTALLED) $(JOBS)
	$(BIN)/python -m tools.mutations --count 25000
	$(BIN)/python -m tests.fuzz --count 10000
	$(BIN)/python -m tests.fuzz.branches --count 500
	$(BIN)/python -m tests.fuzz.sizes --seed 1 --count 400
	$(BIN)/python -m benchmarks.equal_bytes
	$(BIN)/python -m benchmarks.equal_tracing --all --results build/equal_tracing.jsonl
	$(BIN)/python -m tools.core_without_rooms
	$(BIN)/python -m tools.client_requirements

nightly-tensorrt: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-deps --target build/tensorrt onnxruntime-ep-nv-tensorrt-rtx-cu13==0.5.0
	PYTHONPATH=build/tensorrt $(BIN)/pytest tests/backends/test_tensorrt*.py
	PYTHONPATH=build/tensorrt $(BIN)/python -m benchmarks.tensorrt networks --opsets 18,20,22,23 --dtypes float32,float16,bfloat16
	PYTHONPATH=build/tensorrt $(BIN)/python -m benchmarks.tensorrt operators --dtypes float32,float16,bfloat16,int64,bool

nightly-qnn: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-deps --target build/qnn onnxruntime-qnn==2.7.0
	PYTHONPATH=build/qnn $(BIN)/pytest tests/backends/test_qnn*.py tests/backends/legalization/test_npu_weights.py
	PYTHONPATH=build/qnn $(BIN)/python -m benchmarks.qnn
	PYTHONPATH=build/qnn $(BIN)/python -m benchmarks.qnn --opset 21 --precision a16w8
	PYTHONPATH=build/qnn $(BIN)/python -m benchmarks.qnn --decoders

nightly-genai: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-deps --target build/genai onnxruntime-genai==0.18.0
	PYTHONPATH=build/genai $(BIN)/pytest tests/applications/genai
	PYTHONPATH=build/genai $(BIN)/python -m benchmarks.applications_genai

nightly-sherpa: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-deps --target build/sherpa sherpa-onnx==2.0.1 sherpa-onnx-core==2.0.1 kaldi-native-fbank
	PYTHONPATH=build/sherpa $(BIN)/pytest tests/applications/test_sherpa*.py

# lerobot needs Python 3.12 or newer, and pins an older torch.
PYTHON_OF_LEROBOT ?= python3.13
nightly-lerobot:
	test -x build/lerobot/bin/python || $(PYTHON_OF_LEROBOT) -m venv build/lerobot
	build/lerobot/bin/python -m pip install --quiet -e . pytest torch==2.13.0 torchvision==0.28.0 'transformers>=5.4,<5.6' accelerate diffusers 'draccus>=0.11.6,<0.12' einops 'gymnasium<2' 'huggingface-hub<2' num2words opencv-python-headless pandas scipy termcolor
	build/lerobot/bin/python -m pip install --quiet --no-deps lerobot==0.6.1
	build/lerobot/bin/python -m pytest tests/applications/test_policies.py
	build/lerobot/bin/python -m benchmarks.applications_policies --steps

nightly-cuda: $(INSTALLED)
	$(BIN)/python -m benchmarks.cuda $(if $(shell command -v nvidia-smi),,--dry-run)

nightly-tables: $(INSTALLED)
	$(BIN)/python -m benchmarks.kernel_shares

$(RUNTIMES:%=nightly-%): nightly-%: $(INSTALLED)
	$(BIN)/python -m benchmarks.runtimes --runtimes $*

N ?= 1000
fuzz: $(INSTALLED)
	$(BIN)/python -m tests.fuzz --count $(N)

# On a quiet machine; the numbers of docs/benchmarks.md, docs/capture_time.md and the README, in this order.
DYNAMIC := small_bert small_llama resnet50 t5_small dinov2 mamba
benchmark: $(INSTALLED)
	$(BIN)/python -m benchmarks.export_time
	$(BIN)/python -m benchmarks.captures --static --limit 900 --results build/captures_all.jsonl
	$(BIN)/python -m benchmarks.captures --models $(DYNAMIC) --limit 900 --results build/captures_all.jsonl
	$(BIN)/python -m benchmarks.captures --models resnet50 bert_base llama16 swin_t --static --beside --limit 900
	$(BIN)/python -m benchmarks.captures --models small_bert --beside
	$(BIN)/python -m benchmarks.cold_process

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt setuptools -e '.[test]'
	touch $@

clean:
	rm -rf .venv build dist
