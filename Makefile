# Everything a developer does is a target here; `make help` lists them.
SHELL := /bin/sh
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
CASE ?= spine
# Processes that test at once: many tests wait, so that three use two processors.
WORKERS ?= 3
# What the version matrix tests beside the default ansible-core.
CORES = 2.18 2.20 2.22
# The tests of each target. Each test belongs to exactly one of these; tests/integration/test_targets.py checks it.
UNIT_TESTS = -m "quick" tests/unit tests/features tests/engines
INTEGRATION_TESTS = -m "not quick and not full and not nightly" tests/e2e tests/features tests/engines tests/integration tests/unit
FULL_TESTS = -m "full and not nightly" tests
NIGHTLY_TESTS = -m nightly tests
# What the engine can change and no test compares on both engines.
EXEC_TESTS = failures no_log output processes variables
# The sample operator's image, and what deploys it; see config/deploy.mk.
IMG ?= example.com/memcached-operator:v0.0.1
ANSIBLE_OPERATOR ?= $(BIN)/ansible-operator
DIST ?= dist
# What `make check` does, side by side, the longest first.
CHECKS := check-types check-ansible check-layers check-lint check-format check-yaml check-prose
# Examples that have a rule of their own in their .ansible-lint.
LINTED_BY_THEMSELVES = actions mysql

.PHONY: help setup fmt check $(CHECKS) test test-unit test-programs test-integration test-full test-slow test-exec matrix-environments test-matrix test-nightly nightly-tests nightly-properties nightly-matrix test-examples test-parity next-core faults hostile refusals rehearse-release bench demo run build release-manifests docs reference lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make the virtual environment, and the control plane's binaries where they are missing
	@hack/make-venv $(VENV)
	@$(BIN)/ansible-operator cluster build --node=fake >/dev/null

$(VENV)/.made-from: pyproject.toml requirements/*.txt hack/make-venv
	@hack/make-venv $(VENV)

fmt: $(VENV)/.made-from ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What each says is told whole, where make can do that (4.0), and all that is wrong at once.
check: $(VENV)/.made-from ## Format, lint, types, layers and English; writes nothing
	@$(MAKE) --no-print-directory --keep-going --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) $(CHECKS)

check-types:
	$(BIN)/mypy

check-ansible:
	$(BIN)/ansible-lint --offline
	@set -e; for each in $(LINTED_BY_THEMSELVES); do echo "ansible-lint of examples/$$each"; (cd examples/$$each && \
		ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/runner/collections $(CURDIR)/$(BIN)/ansible-lint --offline --profile=production); done

check-layers:
	$(BIN)/lint-imports

check-lint:
	$(BIN)/ruff check .

check-format:
	$(BIN)/ruff format --check .

check-yaml:
	$(BIN)/yamllint --strict .

check-prose:
	$(BIN)/python -m hack.prose

test: test-unit test-integration ## Unit tests, then the tests on a real control plane with real Ansible

test-unit: $(VENV)/.made-from
	$(BIN)/pytest $(UNIT_TESTS) -n $(WORKERS)

test-programs: setup
	@$(BIN)/python -m tests.kit.programs

test-integration: test-programs
	$(BIN)/pytest $(INTEGRATION_TESTS) -n $(WORKERS) --dist loadgroup

test-full: test-exec test-matrix test-slow ## The engine exec, the version matrix (ansible-core 2.18 to 2.22), and tests that take long

test-slow: test-programs
	$(BIN)/pytest $(FULL_TESTS) -n $(WORKERS) --dist loadgroup

test-exec: test-programs
	ANSIBLE_OPERATOR_ENGINE=exec $(BIN)/pytest -m "not full and not nightly" -n $(WORKERS) --dist loadgroup \
		$(EXEC_TESTS:%=tests/integration/engine/test_%.py)

matrix-environments:
	@for core in $(CORES); do hack/make-venv .venvs/core-$$core $$core || exit 1; done

test-matrix: test-programs
	WORKERS=$(WORKERS) hack/matrix $(CORES)

# The tests run one at a time: leases are short in some, so they need a machine without other load.
test-nightly: nightly-tests nightly-properties nightly-matrix ## Hours: every example, long seeds, and all tests on each ansible-core

nightly-tests: test-programs
	$(BIN)/pytest $(NIGHTLY_TESTS) -n 1

nightly-properties: $(VENV)/.made-from
	$(BIN)/pytest -m hypothesis -n $(WORKERS) --hypothesis-profile=full tests/unit tests/features tests/engines

nightly-matrix: test-programs
	MATRIX=whole WORKERS=$(WORKERS) hack/matrix $(CORES)

test-examples: test-programs ## Each example from its deployment to its removal, and its molecule scenario; part of test-full and test-nightly
	$(BIN)/pytest -m "full or nightly" -n $(WORKERS) --dist loadgroup tests/integration/examples

test-parity: setup ## Integration targets of ansible-core itself, compared on each engine; CORE=2.18 for one ansible-core, QUICK=1 for fewer runs
	CORE=$(or $(CORE),all) WORKERS=$(WORKERS) $(BIN)/python -m tests.parity

next-core: setup ## Examine any version of ansible-core, with one table for all shortcuts: CORE=2.22.0rc1, or the newest in the index
	$(BIN)/python -m hack.next_core $(CORE)

faults: setup ## Rounds of faults, all made from outside: FAULTS_SEED, FAULTS_ROUNDS and more, see CONTRIBUTING.md#the-fault-suite
	$(BIN)/python -m tests.faults
	$(BIN)/pytest tests/faults/test_views.py

hostile: setup ## Hostile resources, and tokens of runs, on a live operator: HOSTILE_COUNT, HOSTILE_SEED
	HOSTILE_COUNT=$(or $(HOSTILE_COUNT),200) $(BIN)/pytest tests/integration/operator/test_hostile.py tests/integration/operator/test_hostile_token.py

refusals: setup ## Each request of the operator, with each answer that is not a success
	$(BIN)/pytest -n $(WORKERS) tests/integration/operator/test_every_refusal.py tests/integration/operator/test_every_other_refusal.py tests/integration/operator/test_unknown.py

rehearse-release: test-programs ## What the release workflow does, on this machine and without publishing: package, images, chart, and a stranger who installs them
	$(BIN)/pytest -m nightly tests/integration/image/test_release.py

bench: setup ## Run one benchmark: make bench CASE=spine; prints JSON lines only
	@$(BIN)/python -m bench.$(CASE)

demo: setup ## Control plane, operator and a resource that is created, scaled and deleted; DEMO_KEEP=1 stays up, NODE=real runs its pods, DEMO_FLAGS=--kubeconfig=FILE selects a cluster
	@$(BIN)/python -m hack.demo $(DEMO_FLAGS)

# As in config/manager: a role that needs facts fails here too, not only in the cluster.
run: export ANSIBLE_GATHERING ?= explicit
run: setup ## Run the sample operator on the cluster of your KUBECONFIG
	$(BIN)/ansible-operator run --watches-file watches.yaml

# docker-build, docker-push, install, uninstall, deploy, undeploy and build-installer of the sample operator.
include config/deploy.mk

build: $(VENV)/.made-from ## Build wheel and source distribution into DIST
	$(BIN)/python -m build --no-isolation --outdir $(DIST)

release-manifests: ## Write chart and install.yaml of the sample operator with the image IMG into DIST; CHART_VERSION
	@mkdir -p $(DIST) build
	$(ANSIBLE_OPERATOR) generate chart --image $(IMG) --output build/chart/memcached-operator $(if $(CHART_VERSION),--chart-version $(CHART_VERSION))
	helm package build/chart/memcached-operator --destination $(DIST)
	manifests="$$($(KUBECTL) kustomize config/default)" && printf '%s\n' "$$manifests" | sed 's|image: controller:latest|image: $(IMG)|' > $(DIST)/install.yaml

docs: $(VENV)/.made-from ## Build the book into build/docs
	$(BIN)/python -m hack.recording
	$(BIN)/python -m hack.screenshots
	$(BIN)/mkdocs build --strict

reference: $(VENV)/.made-from ## Write the pages of the book that are made from code
	$(BIN)/python -m hack.reference

lock: $(VENV)/.made-from ## Resolve the locked requirements anew
	hack/lock

clean: ## Remove what was made here
	rm -rf $(VENV) .venvs dist build
