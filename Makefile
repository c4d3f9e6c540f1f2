# Everything from a fresh clone: `make study` and `make test`. Needs Python 3.11, a C compiler and make.
PYTHON ?= python3.11
BIN := .venv/bin
PLUGINS := $(sort $(dir $(wildcard plugins/*/pyproject.toml)))

.PHONY: study test environment lint unit study-tests cluster-tests benchmarks schema locks clean

study: environment
	$(BIN)/snakemake --profile local
	$(BIN)/snakemake --profile local --report report.html

test: lint unit study-tests cluster-tests

environment: .venv/ready

# uv is one of the locked packages: pip installs it, and it installs the rest.
.venv/ready: envs/dev.txt pyproject.toml $(wildcard plugins/*/pyproject.toml)
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet "$$(grep '^uv==' envs/dev.txt)"
	$(BIN)/uv pip sync --quiet --python .venv envs/dev.txt
	$(BIN)/uv pip install --quiet --python .venv --no-deps --editable . $(PLUGINS:%=--editable %)
	touch $@

lint: environment
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: environment
	$(BIN)/pytest --numprocesses auto tests/unit
	for each in $(PLUGINS); do PYTHONPATH=. $(BIN)/pytest -p tests.conftest $${each}tests || exit; done

# With the real frameworks: makes their environments first, which takes about 6 GB, and compiles Horovod.
study-tests: environment
	$(BIN)/snakemake --profile local environments --configfile config/studies/tiny.yaml
	$(BIN)/pytest tests/study

# With a real Slurm and a real Grid Engine, where `sudo tests/cluster/install.sh` has installed them.
cluster-tests: environment
	$(BIN)/snakemake --profile local environments --configfile config/studies/tiny.yaml
	$(BIN)/pytest tests/cluster

benchmarks: environment
	cd benchmarks && for each in recorder_cost dry_run read_runs; do ../$(BIN)/python $$each.py; done

schema: environment
	$(BIN)/python scripts/write_schema.py workflow/schemas/config.schema.json

locks: environment
	scripts/lock.sh

clean:
	rm -rf results .snakemake report.html
