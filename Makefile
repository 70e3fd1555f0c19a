# Two targets are all a new user needs: `make run` and `make test`. Both make .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Else ONNX Runtime, once imported, keeps notes for its maker in ~/.cache (docs/security.md).
export ORT_DISABLE_TELEMETRY = 1

# Tests start hundreds of processes. Where no bytecode may be kept, each compiles our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test fast further check test-cuda test-openvino test-providers test-tensorrt test-tvm test-arm64 test-arm64-whole test-arm64-board test-arm64-board-whole histories agreement properties fuzz zoo months kills bench bench-table3 results docs setup schema proto lock release image clean

run: setup
	$(BIN)/launch cluster.yaml

# Tests marked `alone`, all of them in these files, measure times, rates or the memory of this process,
# bound times, or flood agents, so they run one at a time. All others run side by side; neighbours share servers, so a
# worker takes its part of all tests in their order, and steals only in the end. Slow tests often
# wait for processes, so there are two workers for each CPU (tests/conftest.py).
ALONE := $(addprefix tests/,lab/test_quotas.py lab/test_real.py launcher_runtime/test_changed_quota.py \
    launcher_runtime/test_energy.py launcher_runtime/test_hopeless.py launcher_runtime/test_keyless_flood.py \
    launcher_runtime/test_starting_daemons.py nodes/executors/test_onnx_runtime.py nodes/measuring/test_board.py \
    nodes/test_floods.py nodes/test_usage.py service/test_attacked.py)

# A test that failed beside others is tried once more, with nothing beside it: machines that are busy with other things
# delay processes for seconds. What fails twice has failed.
AGAIN := --last-failed --last-failed-no-failures none

test: check
	$(BIN)/pytest -m "not alone and not further" --numprocesses auto --maxprocesses 4 --dist worksteal \
	    || $(BIN)/pytest -m "not alone and not further" $(AGAIN)
	$(BIN)/pytest -m "alone" $(ALONE) || $(BIN)/pytest -m "alone" $(AGAIN) $(ALONE)

fast: check
	$(BIN)/pytest -m "not alone and not slow and not further" --numprocesses logical --maxprocesses 4 --dist worksteal
	$(BIN)/pytest -m "alone and not slow" $(ALONE)

# More networks and more sizes of what `make test` tries on a few, with figures of papers.
further: setup
	$(BIN)/pytest -m "further" --numprocesses auto --maxprocesses 4 --dist worksteal

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: $(READY)

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[dev]'
	touch $@

# The tests of OpenVINO's executor, alone and beside others, with its wheel in an environment of its own.
test-openvino:
	$(PYTHON) -m venv build/openvino
	build/openvino/bin/python -m pip install --quiet --constraint requirements.lock --editable '.[dev,openvino]'
	build/openvino/bin/pytest tests/nodes/executors/test_openvino.py tests/launcher_runtime/test_mixed_engines.py

# ONNX Runtime's execution providers: the wheel with OpenVINO's takes the place of the usual one.
test-providers:
	$(PYTHON) -m venv build/providers
	build/providers/bin/python -m pip install --quiet --constraint requirements.lock --editable '.[dev]'
	build/providers/bin/python -m pip uninstall --quiet --yes onnxruntime
	build/providers/bin/python -m pip install --quiet --no-deps onnxruntime-openvino
	build/providers/bin/pytest -rs tests/nodes/executors/test_onnx_providers.py

# The contract of engines on an NVIDIA GPU by CUDA, and a pipeline of that GPU and the CPU. The wheel
# with CUDA's provider takes the place of the usual one; the libraries of CUDA come from PyPI, too.
test-cuda:
	$(PYTHON) -m venv build/cuda
	build/cuda/bin/python -m pip install --quiet --constraint requirements.lock --editable '.[dev]'
	build/cuda/bin/python -m pip uninstall --quiet --yes onnxruntime
	build/cuda/bin/python -m pip install --quiet 'onnxruntime-gpu[cuda,cudnn]'
	build/cuda/bin/pytest -rs tests/nodes/executors/test_onnx_providers.py tests/launcher_runtime/test_mixed_engines.py

# Builds TensorRT engines from the subnets of plans, which needs no GPU, and runs none of them.
# TensorRT-RTX (x86-64, 245 MB) goes into an environment of its own.
test-tensorrt:
	$(PYTHON) -m venv build/tensorrt
	build/tensorrt/bin/python -m pip install --quiet --constraint requirements.lock --editable '.[dev,tensorrt-rtx]'
	build/tensorrt/bin/pytest -rs tests/nodes/executors/test_tensor_rt.py \
	    tests/nodes/executors/test_tensor_rt_builds.py tests/launcher/test_engine_check.py

# TVM in a virtual environment of its own, since its wheel takes 400 MB.
test-tvm:
	$(PYTHON) -m venv build/tvm
	build/tvm/bin/python -m pip install --quiet --constraint requirements.lock --editable '.[dev,tvm]'
	build/tvm/bin/pytest tests/nodes/executors/test_tvm.py

# What concerns a board, on emulated ARM, then a cluster of an agent there and one here, with keys.
# Needs root, and makes a Debian for arm64 first (tests/arm64/environment.sh). Emulation is slow: the
# quick part takes three minutes of a machine left alone, the whole one ten to twenty.
ARM64 := tests/arm64/environment.sh
ON_ARM64 := $(addprefix tests/nodes/,test_cache.py test_codec.py test_encoding.py test_fifo_ends.py test_sandbox.py \
    test_worker.py executors/test_onnx_alignment.py executors/test_onnx_blocking.py executors/test_onnx_runtime.py)

test-arm64: setup
	$(ARM64) .venv/bin/pytest -rs -m "not slow and not alone" --numprocesses 2 $(ON_ARM64)
	$(BIN)/pytest -m "not slow" tests/arm64/mixed_cluster.py

test-arm64-whole: setup
	$(ARM64) .venv/bin/pytest -rs -m "not slow and not alone" --numprocesses 2 tests/nodes tests/csdf tests/partition/test_memory.py tests/partition/test_planner.py
	$(ARM64) .venv/bin/node-agent --trial --json
	$(ARM64) --python 3.13 .venv/bin/pytest -rs -m "not slow and not alone" --numprocesses 2 $(ON_ARM64)
	$(BIN)/pytest tests/arm64/mixed_cluster.py

# Two whole emulated boards (Debian with its kernel, systemd and sshd) and an agent here, in a network namespace:
# installed as deploy/README.md says, then used. Needs root. The whole part has all networks of tests/fixtures/models, an
# upgrade, a hanging agent, and boards with pages of 16 KiB.
test-arm64-board: release
	$(ARM64) --disk
	unshare --net $(BIN)/pytest -m "not slow" tests/arm64/whole_board.py

test-arm64-board-whole: release
	$(ARM64) --disk
	unshare --net $(BIN)/pytest tests/arm64/whole_board.py
	$(ARM64) --python 3.13 --disk
	CSDF_EDGE_BOARD=trixie unshare --net $(BIN)/pytest -m "not slow" tests/arm64/whole_board.py

# Faults in a simulated cluster: 10^4 histories, each from a seed, which a failure prints.
histories: setup
	$(BIN)/python -m tests.launcher_runtime.fuzz --histories 10000 --within 300

# A month in the life of a service, in a simulated world: 10^3 of them, each from a seed.
months: setup
	$(BIN)/python -m tests.service.months

# A hundred random kills of a running service and of all around it, within fifteen minutes.
kills: setup
	$(BIN)/python -m benchmarks.kills

# Random networks as exporters write them, cut at random: 10^4, each from a seed, which a failure
# prints. AGREEMENT="--networks 1 --seed 7" draws one again.
agreement: setup
	$(BIN)/python -m tests.agreement.random_networks $(AGREEMENT)
	$(BIN)/python -m tests.agreement.random_networks --bodies --networks 1000

# Everything that is tested on any graph or input, with examples that `make test` has not seen.
properties: setup
	$(BIN)/pytest -m "hypothesis and not alone" --hypothesis-profile search --numprocesses auto --maxprocesses 4 --dist worksteal

# Bad inputs for every reader of what comes from outside, 10^6 of them, guided by coverage. Where
# Atheris cannot be installed, they are made from seeds.
fuzz: setup
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[fuzz]' || true
	$(BIN)/python -m tests.fuzz

# Networks as practitioners export them: what is exported already is read, compared with its original,
# and with ZOO="--launch auto" run over three nodes. ZOO_PYTHON, if given, exports first: a Python that
# has torch, keras and the rest (benchmarks/zoo/export.py).
zoo: setup
	$(if $(ZOO_PYTHON),$(ZOO_PYTHON) -m benchmarks.zoo.export || true)
	$(BIN)/python -m benchmarks.zoo $(ZOO)

# Most of what docs/results.md shows, into build/session: an hour and a half on a machine left alone; needs
# root. BENCH="--minutes 30" measures the most important in half an hour, BENCH=--list tells.
bench: setup
	$(BIN)/python -m benchmarks.session $(BENCH)

# Table 3 of Tang & Stefanov (2021) on emulated boards: hours, and it goes on where it stopped. Needs
# root. TABLE3=--quick measures a part of it in 25 minutes.
bench-table3: setup
	$(BIN)/python -m benchmarks.table3 --resume --output benchmarks/results/table3.json $(TABLE3)

# docs/results.md, from what the benchmarks have measured.
results: setup
	$(BIN)/python -m benchmarks.results

# The documentation as a site that can be read without a network: build/docs/index.html.
docs: setup
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[docs]'
	$(BIN)/python -m docs.build_site

# The JSON schema of cluster.yaml, for editors; a test holds it to the models.
schema: setup
	$(BIN)/python -m launcher.config.schema > launcher/cluster.schema.json

# The messages of the protocol that `launch serve` speaks, compiled from their text.
proto:
	$(PYTHON) -m venv build/proto
	build/proto/bin/python -m pip install --quiet grpcio-tools
	build/proto/bin/python -m grpc_tools.protoc -I launcher/serve/over_grpc \
	    --descriptor_set_out launcher/serve/over_grpc/open_inference.binpb open_inference.proto

# Pins every dependency for every supported Python; needs uv (pip install uv).
lock:
	uv pip compile --universal --python-version 3.10 --extra dev --extra docs --extra fuzz --no-header --no-annotate \
	    --output-file requirements.lock pyproject.toml
	$(HASHES) --extra cpu --output-file deploy/requirements/agent.txt pyproject.toml
	$(HASHES) --output-file deploy/requirements/agent-without-engine.txt pyproject.toml
	$(HASHES) --extra launch --extra plots --extra serve --extra cpu --output-file deploy/requirements/server.txt pyproject.toml

# What is installed on boards and servers has the same versions, and each file's hash.
HASHES = uv pip compile --universal --python-version 3.10 --generate-hashes --no-header --no-annotate \
    --constraint requirements.lock

# What a machine installs from, with hashes, into dist/: the wheel, the source, files of requirements that end with
# the wheel itself (`pip install --require-hashes -r agent.txt`), and the SHA-256 of all (`sha256sum --check SHA256SUMS`).
release: setup
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	cp deploy/requirements/*.txt dist/
	cd dist && for each in *.txt; do \
	    echo "./$$(ls *.whl) --hash=sha256:$$(sha256sum *.whl | cut -c1-64)" >> $$each; done
	cd dist && sha256sum *.whl *.tar.gz *.txt > SHA256SUMS

# The images of the agent and of the server. IMAGE="podman build" or "docker build" builds them with another program;
# IMAGE="buildah build --build-arg BASE=localhost/debian:bookworm" on another base.
IMAGE ?= buildah build
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

image: release
	$(IMAGE) --file deploy/image/Containerfile --tag csdf-edge-agent:$(VERSION) .
	$(IMAGE) --file deploy/image/Containerfile --tag csdf-edge-server:$(VERSION) --build-arg REQUIREMENTS=server .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache .pytest_cache
