# Every target creates .venv on first use and is quick afterwards.

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed

# vLLM iterates sets of strings, so in-process simulations need a fixed hash seed. The command
# line sets all of this for itself (faults/cli/reexec.py); the tests get it from here. One OpenMP
# thread each, because the test processes share the cores.
TEST_ENV := PYTHONHASHSEED=0 OMP_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format bench guard soak requirements docs bundle mori

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

$(STAMP): pyproject.toml requirements/cpu.txt scripts/setup.sh
	@scripts/setup.sh $(VENV)
	@touch $@

setup: $(STAMP) ## create .venv and install everything
	@echo "setup: $(VENV) is ready"

demo: $(STAMP) ## run a workload through a P/D pair and watch a real defect being found
	@$(BIN)/python -m faults.demo

lint: $(STAMP) ## ruff, mypy --strict and the import contracts
	@echo "lint: ruff, mypy, import contracts"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . \
		|| { echo "lint: not formatted; run: make format"; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo >/dev/null || $(BIN)/lint-imports --no-logo

format: $(STAMP) ## rewrite the sources in ruff's format and apply its safe fixes
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

test: lint ## lint, then all tests but the soak runs, on two processes
	@echo "test: pytest on two processes, soak runs excluded"
	@$(TEST_ENV) $(BIN)/python -m pytest -q -n 2
	@echo "test: the released mori library on this CPU, over a scripted verbs provider"
	@$(TEST_ENV) $(BIN)/python -m pytest -q -n 2 hw_tests --arm mori-cpu \
		|| { echo "test: again, alone, what failed: its clock is real, and others use it too"; \
		     $(TEST_ENV) $(BIN)/python -m pytest -q --last-failed hw_tests --arm mori-cpu; }

mori: $(STAMP) ## build the released mori library for this CPU, in .mori-cpu; make test does so, too
	@$(BIN)/python -m hw_tests.arms.mori_cpu.build

soak: $(STAMP) ## the long runs that make test leaves out
	@echo "soak: this may take hours"
	@$(TEST_ENV) $(BIN)/python -m pytest -q -m soak

bench: $(STAMP) ## the speed table on the fixed scenarios
	@$(BIN)/faultlab bench

docs: $(STAMP) ## build the documents as a site, in build/site
	@PYTHONHASHSEED=0 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "docs: open build/site/index.html"
	@echo "docs: to search as well: python -m http.server -d build/site, then http://localhost:8000"

guard: $(STAMP) ## fail if the testbed has become slower than recorded, or than in AGAINST=DIR
	@$(BIN)/faultlab bench --guard $(if $(AGAINST),--against "$(AGAINST)")

requirements: $(STAMP) ## bring the tests in docs/requirements.md up to date
	@$(BIN)/python tests/tidy/requirement_rows.py

bundle: $(STAMP) ## one tar for machines without a network, in dist/ (BUNDLE=--with-mori, --python 3.11)
	@$(BIN)/python scripts/bundle.py $(BUNDLE)
