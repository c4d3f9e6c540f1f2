# Everything from a fresh clone: `make study` and `make test`. Needs Python 3.11, a C compiler and make.
PYTHON ?= python3.11
UV := .venv/bin/uv
LOCKS := main dev data chainer pytorch tensorflow chainer-cuda pytorch-cuda tensorflow-cuda

.PHONY: study environment test lint unit study-test benchmarks locks schema

study: environment
	.venv/bin/snakemake --profile local
	.venv/bin/snakemake --profile local --report report.html

environment: .venv/ready

.venv/ready: envs/dev.txt envs/uv.txt pyproject.toml
	$(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install --quiet --requirement envs/uv.txt
	$(UV) pip sync --quiet --python .venv envs/dev.txt
	$(UV) pip install --quiet --python .venv --no-deps --editable .
	touch $@
