# Every target sets up .venv first. `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help

# Hundreds of processes start in tests and runs: none compiles what another has.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo compare docs test test-slow test-long check fuzz package bench papers

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10

PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# What running needs, and no more.
.venv/runs: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $@

# Engines, exporters, linters and test tools besides.
.venv/ready: .venv/runs
	$(PIP) -e '.[dev]'
	touch $@

demo: .venv/runs  ## train for real: an orchestrator and four unlike learners
	$(BIN)/melisma run

compare: .venv/runs  ## compare the schemes on ten simulated learners
	$(BIN)/melisma compare examples/demo.toml --schemes csa,eta,sync,dab --seeds 5

docs: export OMP_NUM_THREADS = 1
docs: .venv/ready  ## build the documentation's site; its tutorials train for real
	$(BIN)/python docs/_site/make_site.py

# Tests run side by side: a second thread would wait for a core that another has.
test test-slow test-long: export OMP_NUM_THREADS = 1

test: .venv/ready  ## run the tests (the slow ones apart)
	$(BIN)/pytest -q -n auto --maxprocesses 4 --dist worksteal -m 'not slow'

SLOWLY := -o faulthandler_timeout=900 --durations 20
test-slow: .venv/ready  ## run the slow tests
	$(BIN)/pytest -q -m 'slow and not long and alone' $(SLOWLY)
	$(BIN)/pytest -q -m 'slow and not long and not alone' $(SLOWLY) -n 2 --dist worksteal

test-long: .venv/ready  ## run the tests for which CI has no time
	$(BIN)/pytest -q -m long -o faulthandler_timeout=3600

check: .venv/ready  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fuzz: .venv/ready  ## send a server a million hostile frames
	$(BIN)/python benchmarks/fuzz_frames.py

PYTHONS ?= $(PYTHON)
package:  ## build wheel and sdist, and try both in empty environments
	$(PYTHON) .ci/package $(PYTHONS)

# Ours beside most peers, which pin other versions of what we use.
.venv-bench/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@

# A peer that conflicts with the others, alone: benchmarks call it in a process.
.venv-%/ready: benchmarks/peers/%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

BENCHES := csa allocators browser energy options menu promises auto carry weights codecs submodels simulation async rpc live checks hostile larger_than_memory med uncertain coding coded_training fog scale ray flower frameworks busy epochs
bench: .venv-bench/ready  ## run the benchmarks beside their peers
	-$(MAKE) --no-print-directory .venv-ortools/ready  # without it, no rows of CP-SAT
	-$(MAKE) --no-print-directory .venv-flsim/ready  # without it, bench_async has no peer
	-$(MAKE) --no-print-directory .venv-nvflare/ready  # nor of NVFlare
	@failed=; for name in $(BENCHES); do \
		echo "== bench_$$name.py"; \
		PYTHONPATH=$(CURDIR) .venv-bench/bin/python benchmarks/bench_$$name.py || failed="$$failed $$name"; \
	done; \
	test -z "$$failed" || { echo "broke off, or missed a bar:$$failed"; exit 1; }

papers: .venv/runs  ## regenerate the papers' figures and claims, quick variants
	$(BIN)/melisma papers run axon --quick --docs
	$(BIN)/melisma papers run csa --quick --docs
	$(BIN)/melisma papers run dab --quick --docs
	$(BIN)/melisma papers run med --quick --docs
	$(BIN)/melisma papers run tsdcfl --quick --docs
	$(BIN)/melisma papers run fog --quick --docs
	$(BIN)/melisma papers run peers --quick --docs
