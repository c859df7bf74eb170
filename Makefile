# Everything runs in .venv, which the first target makes. `make PYTHON=python3.12 check` uses
# another interpreter; a changed pyproject.toml or constraints.txt installs again.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
JUNIT := build/junit.xml

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PAGE := src/etscope/views/page/_built/page.html
LAB := packages/etscope-lab
LAB_SCRIPT := $(LAB)/src/etscope_lab/pages/_built/lab.js
BUILT := $(PAGE) $(LAB_SCRIPT)
WEB := $(addprefix web/,package.json package-lock.json page.html vite.config.ts vite.lab.config.ts tsconfig.json) \
	$(shell find web/src -type f)

VSIX := editors/vscode/dist/etscope.vsix
EXTENSION := $(wildcard editors/vscode/*.json editors/vscode/*.md editors/vscode/src/*.ts) editors/vscode/build.py

.DEFAULT_GOAL := help
CPP := $(shell find native/src tests/support/native -name '*.cpp' -o -name '*.h')

.PHONY: help install demo native web test test-all test-nightly test-backends test-editor \
	extension stress durations corpus coverage \
	bench docs lint format tidy check clean distclean

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) $(BUILT)  ## Make .venv with everything that the other targets need

# torch comes first and alone: resolved together with the rest it can be taken from an index whose
# build brings gigabytes of CUDA packages.
$(INSTALLED): pyproject.toml constraints.txt hatch_build.py $(LAB)/pyproject.toml $(LAB)/hatch_build.py
	@echo "installing into $(VENV) (some minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -qq "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/pip install -qq -c constraints.txt -e '.[dev]' -e $(LAB)
	@touch $@

# torch and ExecuTorch only, if the rest is not there.
DEMO := $(VENV)/.demo
$(DEMO): pyproject.toml constraints.txt hatch_build.py
	@echo "installing etscope, torch and executorch into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -qq "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/pip install -qq -c constraints.txt -e '.[torch]'
	@touch $@

demo: $(if $(wildcard $(INSTALLED)),$(INSTALLED),$(DEMO))  ## Export a model, run it, show its operators with their source lines
	@mkdir -p demo-output && cd demo-output && $(abspath $(BIN))/etscope run --demo

native: $(INSTALLED)  ## Build the native runner (if it is not) and print its path
	@$(BIN)/python -m etscope.run.native

web: $(BUILT)  ## Build the page of the report and the script of the lab (if web/ has changed)

# The installation builds them too; this is for a changed web/.
$(BUILT): $(WEB) | $(INSTALLED)
	@$(BIN)/python hatch_build.py

extension: $(VSIX)  ## Build the extension for Visual Studio Code

$(VSIX): $(EXTENSION) | $(INSTALLED)
	@$(BIN)/python editors/vscode/build.py

test: $(INSTALLED) $(BUILT)  ## Unit and contract tests, in parallel: under 2 minutes
	@$(BIN)/python -m pytest -n auto --dist loadfile -m "not nightly" $(PYTEST_ARGS) $(LAB)/tests/unit tests/unit tests/contract

# A file's tests stay in one worker, where what the file caches is used; the order is that of the
# folders, which begins with the long files and so ends with both workers busy.
test-all: $(INSTALLED) $(BUILT) $(VSIX)  ## All tests that guard behaviour (25 minutes on 2 cores)
	@$(BIN)/python -m pytest $(PARALLEL) -m "not nightly" --junitxml $(JUNIT) --durations=15 $(PYTEST_ARGS)

# In another order each night, with other random cases, and the recorded runs made anew.
test-nightly: $(INSTALLED) $(BUILT)  ## The long and the large too, in random order (hours)
	@ETSCOPE_FUZZ_SEED=$${ETSCOPE_FUZZ_SEED:-$$(date +%Y%m%d)} $(BIN)/python -m pytest \
	  $(PARALLEL) -p randomly --junitxml $(JUNIT) --durations=40 $(PYTEST_ARGS)
	@$(BIN)/python -m tests.support.make_corpus --check
	@$(MAKE) test-editor test-backends
	@bash .ci/package --all

stress: $(INSTALLED) $(BUILT)  ## Tests that wait for something, 50 times each on a busy machine (days)
	@$(BIN)/python -m tests.support.stress

durations:  ## Write tests/DURATIONS.md from the last `make test-all`
	@$(BIN)/python -m tests.support.durations $(JUNIT)

corpus: $(INSTALLED)  ## Record the runs of tests/corpus/runs whose sources have changed
	@$(BIN)/python -m tests.support.make_corpus

# OpenVINO's and Arm's packages want an older numpy than constraints.txt has: they are laid over .venv.
OVER := .venv-backends

test-backends: $(INSTALLED) $(BUILT)  ## Tests of OpenVINO, TOSA and Ethos-U, with their packages (5 minutes)
	@test -x $(OVER)/bin/python || $(PYTHON) -m venv $(OVER)
	@printf '%s\n' "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" "$(CURDIR)/src" \
		>"$$($(OVER)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	@$(OVER)/bin/python -m pip install -qq 'openvino==2025.4.1' 'nncf==3.1.0' 'ethos-u-vela==5.1.0' 'tosa-tools==2026.5.0'
	@$(OVER)/bin/python -m pytest -n 2 -k "openvino or tosa or ethos" $(PYTEST_ARGS) tests/integration/export/test_backends.py

# Visual Studio Code behind a web page, and JupyterLab, which is laid over .venv. Building code-server
# takes headers that .ci/system-packages installs.
EDITOR := build/editor/node_modules

test-editor: $(INSTALLED) $(BUILT) $(VSIX)  ## Tests in a real editor and a real notebook (5 minutes, 1 GB under build/)
	@mkdir -p build/editor && echo '{"private": true}' >build/editor/package.json
	@test -x $(EDITOR)/node/bin/node || npm --prefix build/editor install --silent node@24
	@test -d $(EDITOR)/code-server || \
	  PATH="$(CURDIR)/$(EDITOR)/node/bin:$$PATH" npm --prefix build/editor install --silent code-server@4.139.1
	@test -x build/jupyter/bin/python || $(PYTHON) -m venv build/jupyter
	@printf '%s\n' "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" "$(CURDIR)/src" \
		>"$$(build/jupyter/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	@build/jupyter/bin/pip install -qq jupyterlab==4.6.6 nbconvert==7.17.2 ipykernel==7.4.0
	@$(BIN)/python -m pytest $(PYTEST_ARGS) tests/e2e/editor

# Child processes are measured, too. Measuring slows the export of a model by more than half.
coverage: $(INSTALLED) $(BUILT)  ## `make test-all` again, then the branch coverage
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(PARALLEL) -m "not nightly" $(PYTEST_ARGS)
	@$(BIN)/coverage combine --quiet
	@printf 'branch coverage of src/etscope and etscope_lab: %s %%\n' "$$($(BIN)/coverage report --format=total --precision=1)"

bench: $(INSTALLED) $(BUILT)  ## Run the benchmarks against upstream's tools and print the ratios
	@$(BIN)/python -m benchmarks.run

docs: $(INSTALLED)  ## Build the documentation into site/
	@$(BIN)/python docs/generate_cli.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

lint: $(INSTALLED)  ## ruff, mypy, spelling and first words of docstrings, clang-format, the extension
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/codespell
	@$(BIN)/python scripts/check_prose.py
	@$(BIN)/clang-format --dry-run --Werror $(CPP)
	@$(BIN)/mypy
	@$(BIN)/python editors/vscode/build.py check

format: $(INSTALLED)  ## Let ruff and clang-format rewrite the files
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CPP)

tidy: $(INSTALLED)  ## clang-tidy over native/ (builds it first; some minutes)
	@cmake -S native -B build/tidy -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_PREFIX_PATH=$$($(BIN)/python -c \
	  "from importlib.util import find_spec; print(*find_spec('executorch').submodule_search_locations)")
	@cmake --build build/tidy --parallel
	@$(BIN)/clang-tidy -p build/tidy --quiet $(filter native/src/%.cpp,$(CPP))

check: lint test docs  ## All that must hold before a commit

clean:  ## Remove what the targets make, but for .venv and the tests' artefacts
	@rm -rf build dist site demo-output .coverage* $(dir $(BUILT) $(VSIX)) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean  ## Remove .venv and the tests' artefacts too
	@rm -rf $(VENV) .artifacts web/node_modules editors/vscode/node_modules
