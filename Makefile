# GPUaaS: every command of the project. `make` alone lists them.
.DEFAULT_GOAL := help
PARTS := contract sdk platform agent apps/slurm apps/etcd apps/ray cli console lab
# `sudo make` runs as root only what needs it, with caches of its own: the clone and the local cloud stay their owner's.
OWNER := $(filter $(shell stat -c %U .),$(filter-out root,$(SUDO_USER)))
AS_OWNER := $(if $(OWNER),sudo -n -H -u $(OWNER))
BIN := $(strip $(AS_OWNER) .venv/bin)
ROOT_CACHES := PYTHONPYCACHEPREFIX=~root/.cache/gpuaas/bytecode HYPOTHESIS_STORAGE_DIRECTORY=~root/.cache/gpuaas/hypothesis
PYTHON := $(if $(OWNER),$(ROOT_CACHES)) .venv/bin/python
# What an installation needs: the parts without the lab. Its packages are locked in runtime.lock, without development tools.
INSTALLED := $(filter-out lab,$(PARTS))
INSTALLED_NAMES := gpuaas-contract gpuaas-sdk gpuaas-platform gpuaas-cli
COMPILE := $(BIN)/uv pip compile --universal --generate-hashes --no-header --python-version 3.11 --overrides tools/overrides.in -q
PACKAGES := $(foreach part,$(PARTS),$(wildcard $(part)/gpuaas_*))
TEST_FOLDERS := $(PARTS:%=%/tests) tests/clients tests/e2e tests/boundary tests/walk tests/attack tests/skew tests/replicas bench docs/how-to
# Targets that run side by side; each prints its output when it has ended.
TOGETHER := --no-print-directory --jobs 2 --output-sync=target
PYTHON_TOOLS := $(shell grep -lE '^.!.*python3' tools/*)
PYTHON_FOLDERS := conftest.py $(PYTHON_TOOLS) contract sdk platform agent apps cli console lab tests bench docs/how-to

TEST_HELPERS := platform/tests:cli/tests:console/tests

.PHONY: help up down test screenshots clients test-guide test-slurm test-faults test-etcd test-ray test-crashes coverage check check-types check-rules compiled-tests words mutants bench contract lock wheels bundle clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

.venv/.ready: requirements.lock tools/bootstrap.lock tools/bootstrap $(PARTS:%=%/pyproject.toml)
	@$(AS_OWNER) tools/bootstrap

up: .venv/.ready ## start a local GPU cloud with Slurm on three machines (ARGS=--help for more)
	@$(BIN)/gpuaas up $(ARGS)

down: .venv/.ready ## stop it; data stays (ARGS=--purge removes it)
	@$(BIN)/gpuaas down $(ARGS)

test: .venv/.ready ## check, then every test; real machines as root or by sudo make test (ARGS="-n 0 -k WORD" for a few)
	@tools/browser
	@$(MAKE) $(TOGETHER) check-types check-rules compiled-tests
	@$(PYTHON) -m pytest -n 5 --dist loadgroup --durations 15 $(ARGS)

test-slurm: .venv/.ready ## the long tests of Slurm: the whole conformance card; on real machines every operation and action, a story in a browser, upgrade, kills, MPI, munge, reboots (two hours, as root)
	@tools/browser
	@$(PYTHON) -m pytest -n 0 --durations 15 -m long apps/slurm tests/e2e console/tests --ignore tests/e2e/test_etcd_on_machines.py --ignore tests/e2e/test_ray_on_machines.py $(ARGS)

test-faults: .venv/.ready ## every fault of a Slurm cluster on real machines: seen within 15 s, no other member blamed, ended by its fix; a person who left can do nothing after a minute (an hour, as root)
	@GPUAAS_CAMPAIGNS=whole $(PYTHON) -m pytest -n 0 -s --durations 15 -m machines tests/e2e/test_slurm_faults.py tests/e2e/test_slurm_people.py $(ARGS)

coverage: .venv/.ready ## which lines of the Slurm app its tests without machines run; fails below 90 % (many minutes)
	@mkdir -p dist
	@$(PYTHON) -m coverage run --data-file dist/coverage --source apps/slurm/gpuaas_app_slurm -m pytest -n 0 -q -m 'not machines and not long' apps/slurm/tests $(ARGS)
	@$(PYTHON) -m coverage report --data-file dist/coverage --skip-covered --sort cover --fail-under 90

test-etcd: .venv/.ready ## the long tests of etcd: the whole conformance card; on real machines, clients write while members are replaced and upgraded (a quarter of an hour, as root)
	@$(PYTHON) -m pytest -n 0 -m long apps/etcd tests/e2e/test_etcd_on_machines.py $(ARGS)

test-ray: .venv/.ready ## the long tests of Ray: the whole conformance card; on real machines, a job runs while workers leave and join (a quarter of an hour, as root)
	@$(PYTHON) -m pytest -n 0 -m long apps/ray tests/e2e/test_ray_on_machines.py $(ARGS)

test-crashes: .venv/.ready ## controller and platform are killed during operations of an app from the scaffold (a minute; make bench ARGS="crashes --help" does more)
	@$(PYTHON) -m pytest -n 0 -m long tests/attack/test_crash_matrix.py $(ARGS)

test-guide: .venv/.ready ## every command of "Build an app", the conformance kit on real machines, own packages in the lab, machine access in plain HTTP (minutes, as root)
	@$(PYTHON) -m pytest -n 0 --durations 15 -m long tests/e2e/test_build_an_app.py tests/e2e/test_conformance_on_a_platform.py tests/e2e/test_lab_page.py tests/e2e/test_machine_access_in_plain_http.py $(ARGS)

clients: .venv/.ready ## make clients for Go and TypeScript from the OpenAPI document, compile them and call a server (installs generators into dist/)
	@$(AS_OWNER) tools/clients
	@$(PYTHON) -m pytest -n 0 -m long tests/clients $(ARGS)

check: .venv/.ready ## format, lint, types, import rules, no app words, one owner of each fact, safe comparisons, plain words, golden contract
	@$(MAKE) $(TOGETHER) check-types check-rules

check-types: .venv/.ready
	@$(BIN)/mypy $(PACKAGES)
	@for folder in $(TEST_FOLDERS); do $(BIN)/mypy $$folder || exit 1; done
	@for tool in $(PYTHON_TOOLS); do $(BIN)/mypy --scripts-are-modules $$tool || exit 1; done
	@$(BIN)/python tools/kit-examples

check-rules: .venv/.ready
	@$(BIN)/ruff format --check -q $(PYTHON_FOLDERS)
	@$(BIN)/ruff check -q $(PYTHON_FOLDERS)
	@$(BIN)/lint-imports --no-cache
	@tools/no-app-words
	@$(BIN)/python tools/one-owner
	@$(BIN)/python tools/secret-comparisons
	@$(BIN)/python tools/plain-words --tests
	@$(BIN)/python -m gpuaas_contract.openapi --check contract/openapi/openapi.json
	@$(BIN)/python -m gpuaas_contract.permissions --check docs/reference/permissions.md
	@$(BIN)/python -m gpuaas_contract.asyncapi --check contract/asyncapi/asyncapi.json docs/reference/events.md
	@$(BIN)/python -m gpuaas_contract.reference --check docs/reference/lifecycles.md docs/reference/errors.md
	@$(BIN)/python -m gpuaas_cli.reference --check docs/reference/cli.md
	@$(BIN)/python -m gpuaas_cli.manifest_reference --check docs/reference/manifest.md
	@$(BIN)/python -m gpuaas_sdk.reference --check docs/reference/kit.md
	@$(BIN)/python -m gpuaas_platform.commands.schema --check

# All processes of the tests load every test file. One of them alone compiles it, while the types are checked.
compiled-tests: .venv/.ready
	@$(PYTHON) -m pytest --collect-only -q >/dev/null || :

words: .venv/.ready ## words that are not plain English, with what to write instead (ARGS=--tests, or a path)
	@$(BIN)/python tools/plain-words $(ARGS)

screenshots: .venv/.ready ## a picture of each page of the console, light and dark, in dist/screenshots (ARGS=FOLDER for another)
	@tools/browser
	@PYTHONPATH=$(TEST_HELPERS) $(PYTHON) -m screenshots $(or $(ARGS),dist/screenshots)

mutants: .venv/.ready ## plant known bugs one at a time, print those that no test catches (ARGS="-k WORD" for a few)
	@$(BIN)/python tools/mutants $(ARGS)

bench: .venv/.ready ## measured ratios: durable POST against its floor, work on a long record, deploy against a shell script
	@$(PYTHON) -m bench $(ARGS)

contract: .venv/.ready ## renew the golden OpenAPI and AsyncAPI documents after a change on purpose
	@$(BIN)/python -m gpuaas_contract.openapi --write contract/openapi/openapi.json
	@$(BIN)/python -m gpuaas_contract.permissions --write docs/reference/permissions.md
	@$(BIN)/python -m gpuaas_contract.asyncapi --write contract/asyncapi/asyncapi.json docs/reference/events.md
	@$(BIN)/python -m gpuaas_contract.reference --write docs/reference/lifecycles.md docs/reference/errors.md
	@$(BIN)/python -m gpuaas_cli.reference --write docs/reference/cli.md
	@$(BIN)/python -m gpuaas_cli.manifest_reference --write docs/reference/manifest.md
	@$(BIN)/python -m gpuaas_sdk.reference --write docs/reference/kit.md
	@$(BIN)/python -m gpuaas_platform.commands.schema --write

lock: .venv/.ready ## resolve requirements.in again into requirements.lock, and from it what an installation needs: runtime.lock
	@$(COMPILE) requirements.in -o requirements.lock
	@$(COMPILE) --no-annotate -c requirements.lock --extra otlp --extra vault $(INSTALLED_NAMES:%=--no-emit-package %) $(INSTALLED:%=%/pyproject.toml) -o runtime.lock
	@$(COMPILE) tools/bootstrap.in -o tools/bootstrap.lock
	@$(COMPILE) tools/clients.in -o tools/clients.lock

wheels: .venv/.ready ## build the wheel of each part into dist/, the same bytes every time
	@$(AS_OWNER) tools/wheels $(PARTS)

bundle: wheels ## an archive in dist/ that installs without a network (ARGS="3.12 aarch64" for another Python or processor)
	@$(AS_OWNER) tools/bundle $(ARGS)

clean: ## remove the environment and caches
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
