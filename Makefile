# make demo   the main job end to end        make check   lint, types, layers
# make test   the whole test suite           make lock    renew requirements.lock
# make test-hosts   the capture side on Python 3.7 and 3.9 with the TensorFlows of training hosts, where those are found
# PYTHON=... picks the interpreter, VENV=... the folder of the environment, JOBS=... the test processes,
# DEMO="--fault none --seed 3" hands options to the demo.

VENV ?= .venv
PYTHON ?=
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2
DEMO ?=

HOSTS ?= $(VENV)-hosts

export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test-hosts check lock install clean

demo: install
	@$(BIN)/python cli.py demo $(DEMO); code=$$?; [ $$code -le 1 ] || exit $$code

test: install
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests

test-hosts: install
	$(BIN)/python tests/hosts/run.py --environments $(HOSTS)

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --no-tips --violations -t=3.7- $(CAPTURE_SIDE)

# What runs on a training host: Python 3.7 syntax and library only.
CAPTURE_SIDE := dumpers/errors.py dumpers/names.py dumpers/dtypes.py dumpers/settings.py dumpers/workspace.py \
	dumpers/capture precision_tool/tf_config.py precision_tool/tf_session.py \
	engine/models/plain.py precision_tool/bench/fault_recorder.py

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml .ci/find_python.sh
	@python=$$(sh .ci/find_python.sh "$(PYTHON)") || exit 1; \
	[ -x $(BIN)/python ] || "$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	$(BIN)/python -m pip check
	$(BIN)/python -m compare
	@touch $@

lock: install
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --no-header --no-annotate \
		--no-emit-index-url --quiet --upgrade -o requirements.lock

clean:
	rm -rf $(VENV) $(HOSTS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
