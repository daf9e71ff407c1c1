# Every target sets up .venv first. `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo compare test test-slow test-long check bench papers

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/ready  ## train for real: an orchestrator and four unlike learners
	$(BIN)/melisma run

compare: .venv/ready  ## compare the schemes on ten simulated learners
	$(BIN)/melisma compare examples/demo.toml --schemes csa,eta,sync,dab --seeds 5

test: .venv/ready  ## run the tests (the slow ones apart)
	$(BIN)/pytest -q -m 'not slow'

test-slow: .venv/ready  ## run the slow tests
	$(BIN)/pytest -q -m 'slow and not long'

test-long: .venv/ready  ## run the tests for which CI has no time
	$(BIN)/pytest -q -m long

check: .venv/ready  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The peers pin other versions of what we use, so they live apart.
.venv-bench/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@

bench: .venv-bench/ready  ## run the benchmarks beside their peers
	.venv-bench/bin/python benchmarks/bench_csa.py
	.venv-bench/bin/python benchmarks/bench_simulation.py
	.venv-bench/bin/python benchmarks/bench_rpc.py
	.venv-bench/bin/python benchmarks/bench_live.py
	.venv-bench/bin/python benchmarks/bench_checks.py
	.venv-bench/bin/python benchmarks/bench_med.py
	.venv-bench/bin/python benchmarks/bench_uncertain.py
	.venv-bench/bin/python benchmarks/bench_coding.py
	.venv-bench/bin/python benchmarks/bench_coded_training.py
	.venv-bench/bin/python benchmarks/bench_fog.py
	.venv-bench/bin/python benchmarks/bench_scale.py
	.venv-bench/bin/python benchmarks/bench_ray.py
	.venv-bench/bin/python -m benchmarks.bench_flower

papers: .venv/ready  ## regenerate the papers' figures and claims, quick variants
	$(BIN)/melisma papers run csa --quick
	$(BIN)/melisma papers run dab --quick
	$(BIN)/melisma papers run med --quick
	$(BIN)/melisma papers run tsdcfl --quick
	$(BIN)/melisma papers run fog --quick
