# Everything a person or the CI runs. "make setup" is enough on a new machine; "make help" lists the rest.
.DEFAULT_GOAL := help
.PHONY: help setup engine image image-dev demo attack-demo check test unit container e2e soak bench fmt lock reap clean
.NOTPARALLEL:
BIN := .venv/bin
CODE := sandbox_agent tests bench

help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: .venv/.installed engine image ## make .venv, a Docker Engine that answers and the image; quick when all is there
	@echo "setup: ready. Try: make demo"

# The lock file or the package's own description changed, or there is no environment yet.
.venv/.installed: requirements.lock pyproject.toml
	@.ci/venv

engine:
	@images/engine.sh

image: engine ## build sandbox-agent/base:latest if its recipe changed
	@images/build.sh base

image-dev: engine ## build sandbox-agent/dev:latest: compilers, pip, node and npm
	@images/build.sh dev

demo: setup ## watch an agent repair a small project; needs no API key
	@$(BIN)/sandbox-agent demo

attack-demo: setup ## watch a hostile repository try what it can, and what holds it; needs no API key
	@$(BIN)/sandbox-agent demo --attack

check: .venv/.installed ## format, lint, types, import floors and unit tests; needs no Docker
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/unit

# One stage after the other, the quick ones first; each ends with pytest's own closing line.
# The dev image takes one core for a minute or two; the checks need the other.
test: setup ## everything the CI runs: check, then the tests with a real engine
	@images/build.sh dev & image=$$!; $(MAKE) --no-print-directory check; checked=$$?; wait $$image && exit $$checked
	$(BIN)/python -m pytest tests/container
	$(BIN)/python -m pytest tests/e2e

unit: .venv/.installed ## unit tests only
	$(BIN)/python -m pytest tests/unit

container: setup image-dev ## tests against a real engine
	$(BIN)/python -m pytest tests/container

e2e: setup ## tests of the command line from end to end
	$(BIN)/python -m pytest tests/e2e

soak: setup ## the long tests that "make test" leaves out
	SANDBOX_AGENT_FRESH_EXAMPLES=1 $(BIN)/python -m pytest -m soak

bench: setup ## measure against a plain subprocess and others; prints a Markdown table
	$(BIN)/python -m bench

fmt: .venv/.installed ## format the code and repair what ruff can
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

lock: .venv/.installed ## pin the newest allowed packages in requirements.lock
	$(BIN)/uv --no-config pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --upgrade --quiet --output-file requirements.lock

reap: .venv/.installed ## remove containers whose owner is gone
	@$(BIN)/sandbox-agent reap

clean: ## remove .venv, caches and build results; leaves engine and images alone
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find sandbox_agent tests bench -name __pycache__ -type d -prune -exec rm -rf '{}' +
