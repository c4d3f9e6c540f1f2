# A fresh clone needs only `make study` or `make test`. Required: Python 3.11 to 3.14, a C compiler and make. `make help` lists what else
# there is: targets with a text after ##.
# The first one that starts: pyenv has a name on PATH for each version, and only those start to which its user has switched.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && { echo $$name; break; }; done)
BIN := .venv/bin
ENVIRONMENTS := $(filter-out main dev build-constraints trainers_more %-cuda,$(basename $(notdir $(wildcard envs/*.txt))))
FRAMEWORKS := $(patsubst %,tests/study/test_%.py,consistency deterministic_mode frameworks shards)
STUDIES := $(patsubst %,tests/study/test_%.py,determinism study)
WORKFLOWS := $(patsubst %,tests/study/test_%.py,failures page_in_browser page_in_hand profiles recoveries report workflow)
PROBES := $(wildcard tests/study/test_probe*.py)
CLUSTER_STUDIES := $(patsubst %,tests/cluster/test_%.py,study requeue near_levels)
# The distributions beside the main one.
PLUGINS := $(sort $(dir $(wildcard plugins/*/pyproject.toml probe/pyproject.toml)))

# Where Python may keep no bytecode, each of the tests' thousands of processes would compile the library again.
unexport PYTHONDONTWRITEBYTECODE
# An environment that is there may need it (src/ckptbench/inputs/environments/present.py).
export CKPTBENCH_PYTHONPATH := $(PYTHONPATH)
# A site's modules set these for another Python (src/ckptbench/common/foreign.py has the list, too). pip.conf may say the same as PIP_USER.
unexport PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTHONSTARTUP PYTHONINSPECT PYTHONPLATLIBDIR PIP_REQUIRE_VIRTUALENV PIP_TARGET PIP_PREFIX PIP_ROOT
export PIP_USER := 0
# Without a registry, all comes from a folder that `make wheelhouse` has packed.
ifdef WHEELHOUSE
export PIP_NO_INDEX := 1
export UV_OFFLINE := 1
export PIP_FIND_LINKS := $(abspath $(WHEELHOUSE))
export UV_FIND_LINKS := $(abspath $(WHEELHOUSE))
endif

.PHONY: help study gpu plan test test-full environment make-venv wheelhouse environments lint unit own-unit-tests plugin-tests run-tests framework-tests probe-tests study-tests workflow-tests cluster-tests cluster-studies benchmarks generated locks clean decide audit

help: ## this list
	@sed -n 's/^\([a-z-]*\):.* ## /\1 /p' $(MAKEFILE_LIST) | while read -r name text; do printf '%-16s %s\n' "$$name" "$$text"; done

# `present` is the `python` on PATH, into which nothing is installed. The same command again goes on where it was cut.
gpu: environment ## the study of one GPU, with the PyTorch of the `python` on PATH: about eight minutes (docs/cluster.md)
	CKPTBENCH_ANSWER=last $(BIN)/snakemake --profile local --configfile config/studies/gpu.yaml --config 'environments={pytorch: present, data: present}'
	@echo; cat results/answer.txt

# It ends with the answer, which the workflow would print before the report is made.
study: environment ## run the default study on this machine: 10 to 12 minutes (35 without AVX-512), then an answer, results/index.html and report.html
	CKPTBENCH_ANSWER=last $(BIN)/snakemake --profile local
	$(BIN)/snakemake --profile local --report report.html
	@echo; cat results/answer.txt

# Paths reach commands through the environment, which keeps every character of them.
export CONFIG NUMBERS REPEATS PROFILE
NAMED_CONFIG = test -z "$$CONFIG" || { test -f "$$CONFIG" && test -r "$$CONFIG"; } || \
  { echo "CONFIG is $$CONFIG: there is no such file that can be read: correct the path"; exit 1; }
export NUMBERS_AS_JSON = import json, os; print(json.dumps({"numbers": os.environ["NUMBERS"]}))

# Of a file that Snakemake cannot read, its own error names no place.
OR_NAME_THE_LINE = || { test -z "$$CONFIG" || $(BIN)/python -m ckptbench.config.reading config/config.yaml "$$CONFIG"; exit 1; }
# As Snakemake looks for it, a path or a name; its own error lists no names.
NAMED_PROFILE = test -z "$$PROFILE" || test -d "$$PROFILE" || test -d "profiles/$$PROFILE" || test -d "$${XDG_CONFIG_HOME:-$$HOME/.config}/snakemake/$$PROFILE" || \
  test -d "/etc/xdg/snakemake/$$PROFILE" || { echo "PROFILE is $$PROFILE: name one of $$(ls -m profiles), or the folder of your own"; exit 1; }

# Snakemake ends when it has read the study, before it looks at a single job.
plan: environment ## what a study takes: runs, checkpoints, bytes, time; CONFIG=FILE, on a cluster PROFILE=slurm for node-hours
	@$(NAMED_CONFIG)
	@$(NAMED_PROFILE)
	@CKPTBENCH_PLAN=only $(BIN)/snakemake -n --profile "$${PROFILE:-local}" $(if $(CONFIG),"--configfile=$$CONFIG") $(OR_NAME_THE_LINE)

# Nothing is trained.
decide: environment ## how often to checkpoint, from the tables that are there or NUMBERS=FILE; other settings by CONFIG=FILE
	@$(NAMED_CONFIG)
	@test -n "$$NUMBERS" || test -e results/tables/strategies.parquet || \
	  { echo "results/tables has no tables yet: run a study first (make study), or give your own costs: make decide NUMBERS=config/costs-example.yaml"; exit 1; }
	CKPTBENCH_ANSWER=last $(BIN)/snakemake --profile local decision \
	  --allowed-rules decide write_answer write_page draw_advice draw_scale decision \
	  $(if $(CONFIG),"--configfile=$$CONFIG") $(if $(NUMBERS),--config "decision=$$($(BIN)/python -c "$$NUMBERS_AS_JSON")") $(OR_NAME_THE_LINE)
	@echo; cat results/answer.txt

# Checks the machine and, if a study was made here, its runs. With REPEATS=20 each takes some seconds more.
audit: environment ## can this machine's study be trusted? Less than three minutes; REPEATS=20 against noise, CONFIG=FILE
	@$(NAMED_CONFIG)
	$(BIN)/snakemake --profile local $(if $(CONFIG),"--configfile=$$CONFIG") --allowed-rules audit --forcerun audit -- audit $(OR_NAME_THE_LINE)

# What needs no framework is tested while the environments are made, which mostly waits for disk and network. Of the others, four of the seven run at
# a time, the longest first: the tests with schedulers mostly wait. They share the processes that have imported the frameworks. Each prints its
# output when it ends.
TOGETHER := $(MAKE) --keep-going --output-sync=target
test: environment ## all tests, with the real frameworks and schedulers: 20 minutes, 11 GB of environments
	@$(TOGETHER) --jobs=3 environments lint unit; first=$$?; \
	  $(BIN)/python -m tests.study.warm $(TOGETHER) --jobs=4 cluster-tests run-tests study-tests probe-tests cluster-studies workflow-tests framework-tests && exit $$first

# tests/study/selection.py reads the switch.
test-full: export CKPTBENCH_FULL_TESTS = 1
test-full: test ## the same with every combination, more kills and more seeds: hours

# .venv/ready says what .venv was made from, and where: a checkout of another age makes nothing again, and a copy makes its own, as that of
# another clone runs the code of that clone.
BUILT_FROM := envs/dev.txt envs/build-constraints.txt pyproject.toml hatch_build.py src/ckptbench/checkpointing/copying.c $(PLUGINS:%=%pyproject.toml)
environment: ## make .venv, in which everything else runs
	@lines=$$(test -L .venv && echo 1 || echo 2); \
	  now=$$({ cat $(BUILT_FROM) | sha256sum; pwd; } | sed $${lines}q); \
	  { test "$$now" = "$$(sed $${lines}q .venv/ready 2>/dev/null)" $(NAMED_PYTHON); } || $(MAKE) --no-print-directory make-venv

# Where PYTHON is named, .venv must have its version.
NAMED_PYTHON = $(if $(filter-out undefined default file,$(origin PYTHON)),&& test "$$($(PYTHON) -V 2>/dev/null)" = "$$($(BIN)/python -V)")

# uv is one of the locked packages. pip installs uv, and uv installs the rest. Each file must have a hash that is locked.
BUILD := --require-build-hashes --preview-features build-dependency-hashes --build-constraints envs/build-constraints.txt
make-venv:
	@$(if $(WHEELHOUSE),test -d "$(WHEELHOUSE)" || { echo "WHEELHOUSE is $(WHEELHOUSE): there is no such folder; make wheelhouse packs it where there is a network"; exit 1; })
	@test ! -L .venv || { echo ".venv is a link to that of another clone, which has other packages: remove the link"; exit 1; }
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null || \
	  { echo "$(or $(PYTHON),no Python on your PATH) is not a Python 3.11 to 3.14: load one, or name one with PYTHON=; docs/cluster.md says how uv brings one"; exit 1; }
	$(PYTHON) -m venv --clear .venv
	sed -n '/^uv==/,/[^\]$$/p' envs/dev.txt > .venv/uv.txt
	$(BIN)/python -m pip install --quiet --require-hashes --requirement .venv/uv.txt
	$(BIN)/uv pip sync --quiet --compile-bytecode --require-hashes $(BUILD) --python .venv envs/dev.txt
	$(BIN)/uv pip install --quiet $(BUILD) --python .venv --no-deps --editable . $(PLUGINS:%=--editable %)
	{ cat $(BUILT_FROM) | sha256sum; pwd; } > .venv/ready

# The environment `data` prepares datasets.
LOCKS ?= dev data
PYTHON_VERSION ?= $(shell $(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PLATFORM ?= manylinux_2_28_x86_64
wheelhouse: environment ## pack .venv's wheels for a machine without a registry: PYTHON_VERSION=3.12, PLATFORM=manylinux_2_28_x86_64
	$(BIN)/python -m scripts.wheelhouse wheelhouse $(PYTHON_VERSION) $(PLATFORM) $(LOCKS)
	@for project in . $(PLUGINS); do (cd $$project && $(abspath $(BIN))/python -m hatchling build --target wheel --directory $(CURDIR)/wheelhouse >/dev/null 2>&1) || exit; done
	@du -sh wheelhouse

lint: environment ## check style, words, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell *.md docs/*.md config Makefile Snakefile workflow scripts src plugins probe examples benchmarks profiles
	$(BIN)/python -m scripts.prose

unit: own-unit-tests plugin-tests ## only the unit tests: four minutes

# Of a file, one process makes what its tests share.
own-unit-tests: environment ## those of ckptbench itself
	$(BIN)/pytest --numprocesses auto --dist loadfile tests/unit

plugin-tests: environment ## those of the plug-ins and the probe
	PYTHONPATH=. $(BIN)/pytest -p tests.conftest --numprocesses auto $(PLUGINS:%=%tests)

# Each by its lock. Horovod is compiled.
environments: environment ## make the environments of all frameworks on CPU
	$(BIN)/snakemake --profile local $(ENVIRONMENTS:%=.environments/%/ready.json)

run-tests: environments ## tests with the real frameworks, in single runs
	$(BIN)/pytest --durations=10 tests/study $(patsubst %,--ignore=%,$(FRAMEWORKS) $(STUDIES) $(WORKFLOWS) $(PROBES))

framework-tests: environments ## what every framework and strategy must keep to
	$(BIN)/pytest --durations=10 $(FRAMEWORKS)

probe-tests: environments ## trainings by PyTorch, Lightning, Keras and others under ckptbench-probe
	$(BIN)/pytest --durations=10 $(PROBES)

study-tests: environments ## the same frameworks, in whole studies
	$(BIN)/pytest --durations=10 $(STUDIES)

workflow-tests: environments ## the workflow: killed, interrupted, with faults, with every profile; and its pages
	$(BIN)/pytest --durations=10 $(WORKFLOWS)

# The schedulers that `sudo tests/cluster/install.sh` has installed.
cluster-tests: environments ## tests with a real Slurm, Grid Engine and PBS
	$(BIN)/pytest --durations=10 tests/cluster $(CLUSTER_STUDIES:%=--ignore=%)

cluster-studies: environments ## the same schedulers, with trainings in their jobs
	$(BIN)/pytest --durations=10 $(CLUSTER_STUDIES)

benchmarks: environment ## what ckptbench itself costs
	$(BIN)/python benchmarks/dry_run.py
	$(BIN)/snakemake --profile local .environments/pytorch/ready.json
	PYTHONPATH=src .environments/pytorch/bin/python benchmarks/own_cost.py
	PYTHONPATH=probe/src .environments/pytorch/bin/python benchmarks/probe_cost.py
	.environments/pytorch/bin/python benchmarks/due.py

# A test fails where one of these files differs from the source.
generated: environment ## write the files that follow from the source
	$(BIN)/python -m scripts.write_pages
	$(BIN)/ckptbench page docs/calculator.html

locks: environment ## lock the environments again
	scripts/lock.sh

clean: ## remove results, report and Snakemake's records
	rm -rf results .snakemake report.html
