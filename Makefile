# All that is needed beforehand: make, Python 3.11 to 3.13, Java 17 or later.
PYTHON ?= $(shell for each in python3.12 python3.11 python3.13 python3; do \
	$$each -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& { echo $$each; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadgroup
PACKAGES := about cli coordinator events failpoints kafka lakes listeners state_store writer_hooks
SOURCES := $(shell find $(PACKAGES) -name '*.py' -not -path '*/__pycache__/*')
CHECKED := $(PACKAGES) tests tools examples setup.py
LOCKED := delta demo glue hdfs iceberg java msk object-stores openlineage otel postgres
# uv takes a fifth of the time of pip. It reads no settings of pip, so it is told the index. A terminal shows the progress.
INSTALL = index="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}}"; \
	$${index:+env UV_DEFAULT_INDEX="$$index"} $(BIN)/uv pip install $$(test -t 1 || echo --quiet)
UV := $(or $(shell command -v uv 2>/dev/null),$(BIN)/uv)
FLIGHTS ?= 6000
SEEDS ?= 200
SPARKS ?= 3.5.9 4.0.5 4.1.4 4.2.1
# Releases of Kafka beside the embedded one; each has a list of its jars in tests/kafka.
KAFKAS ?= 3.9.2 4.0.2
# The oldest release, on which `make test-all` runs a sample of tests.
OLD_SPARK ?= $(firstword $(SPARKS))
PYTHONS ?= 3.11 3.12 3.13
# Tests of what every release of Spark can do. The code of old releases warns.
FOREACH := tests/hooks/test_foreach.py tests/hooks/test_foreach_refusals.py tests/integration/test_foreach.py
# Tests of what depends on pyarrow.
ARROW := $(addprefix tests/lakes/,test_values.py test_table_values.py test_footer_bytes.py test_file_statistics.py \
	test_floats.py iceberg/test_writer.py delta/test_writer.py)
# What the examples for clusters need beside the lock file. pip must not change what the lock file names.
CLUSTERS := ray==2.60.0 dask==2026.8.0 distributed==2026.8.0 cloudpickle==3.1.3 filelock==4.3.1 \
	importlib_metadata==10.2.0 jsonschema==4.26.0 jsonschema-specifications==2025.9.1 lazy-importer==0.1.0 \
	locket==1.0.0 msgpack==1.2.4 partd==1.4.2 protobuf==7.36.2 referencing==0.37.0 rpds-py==2026.9.1 \
	tblib==3.2.2 toolz==1.2.0 tornado==6.6.1 zict==3.0.0 zipp==4.1.2
# The Pythons beside the one of .venv.
OTHERS := $(filter-out $(shell $(or $(wildcard $(BIN)/python),$(PYTHON)) \
	-c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null),$(PYTHONS))

# The part of all tests that `make test-all` runs, such as 2/5; by default each of them in turn.
PART ?=
PARTS ?= 5

# The tests start hundreds of processes, and pytest rewrites each of their files: both are kept from run to run.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: dist release-check demo simulate test test-all test-new-arrow test-sparks test-old-spark test-kafkas test-clusters test-pythons fast check format unit short-demo sync lock bench docs clean

## The whole demo: 336,776 flights, three regions, one table.
demo: $(if $(wildcard $(VENV)/.installed),sync,$(VENV)/.demo)
	$(BIN)/sluicegate demo $(ARGS)

## What must hold before a change lands. On two cores at most 12 minutes, the installation aside.
test: check
	$(PYTEST) -m "not matrix and (seam or not (servers or long))" $(ARGS)
	$(MAKE) --no-print-directory short-demo

## The tests that need no server and little time, in two processes: before each commit.
fast: sync
	$(PYTEST) -m "not (servers or slow or long or matrix)" -q $(ARGS)

## All tests, or one part of them: make test-all PART=2/5. Each part leaves its result in .test-results/.
test-all: sync
ifeq ($(PART),)
	set -e; for part in $$(seq $(PARTS)); do $(MAKE) --no-print-directory test-all PART=$$part/$(PARTS); done
	$(MAKE) --no-print-directory test-clusters test-kafkas test-old-spark test-new-arrow
else
	$(PYTEST) --part $(PART) -q $(ARGS)
endif

check: sync
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/mypy -p sluicegate
	$(BIN)/mypy tests tools examples
	$(BIN)/lint-imports

unit: sync
	$(PYTEST) $(ARGS)

## The tests with Spark, on other releases. Before 4.1, Spark has no data source for streams.
# Some of these releases leave sockets open, of which Python warns.
test-sparks: sync $(SPARKS:%=$(VENV)/spark-%/.installed)
	set -e; for spark in $(SPARKS); do case $$spark in 3.*|4.0.*) tests="$(FOREACH)" ;; *) tests="-m spark" ;; esac; \
	PYTHONPATH=$(CURDIR)/$(VENV)/spark-$$spark $(BIN)/python -m pytest -q $$tests -W default --disable-warnings \
	$(ARGS); done

## A sample of tests on the oldest release of Spark.
test-old-spark: sync $(VENV)/spark-$(OLD_SPARK)/.installed
	PYTHONPATH=$(CURDIR)/$(VENV)/spark-$(OLD_SPARK) $(BIN)/python -m pytest -q -m old_spark $(FOREACH) \
	-W default --disable-warnings $(ARGS)

## What a broker decides, on other releases of Kafka: topics, tokens, clients, commits, retention.
test-kafkas: sync
	set -e; for each in $(KAFKAS); do SLUICEGATE_TEST_KAFKA_RELEASE=$$each $(BIN)/python -m pytest -q tests/kafka \
	tests/integration/test_commit.py tests/integration/test_retention.py $(ARGS); done

## The examples for Ray and Dask.
test-clusters: sync $(VENV)/clusters/.installed
	PYTHONPATH=$(CURDIR)/$(VENV)/clusters $(BIN)/python -m pytest -q tests/integration/test_cluster_examples.py $(ARGS)

## What reads and writes files of Iceberg and Delta, with the newest pyarrow. Paimon limits the one of the lock file.
test-new-arrow: sync $(VENV)/arrow/.installed
	PYTHONPATH=$(CURDIR)/$(VENV)/arrow $(BIN)/python -m pytest -q $(ARROW) -k "not paimon" -m "not servers and not long" $(ARGS)

# About 150 MB, downloaded once.
$(VENV)/arrow/.installed: | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D) pyarrow
	touch $@

# About 250 MB, downloaded once.
$(VENV)/clusters/.installed: | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D) $(CLUSTERS)
	touch $@

# About 350 MB for each release, downloaded once.
$(VENV)/spark-%/.installed: | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(@D) pyspark==$*
	touch $@

## All tests on other Pythons, each with an environment in .venv: 2.6 GB for each, made once.
test-pythons: sync $(OTHERS:%=$(VENV)/python-%/.installed)
	set -e; for each in $(OTHERS); do \
	$(VENV)/python-$$each/bin/python -m pytest --numprocesses 2 --dist loadgroup -q $(if $(PART),--part $(PART)) $(ARGS); \
	done

# The interpreter is the one on the PATH; else uv finds or downloads one.
$(VENV)/python-%/.installed: requirements.lock pyproject.toml | $(VENV)/.synced
	@python$* -m venv $(@D) 2>/dev/null || uv venv --quiet --seed --allow-existing --python $* $(@D) || { \
	echo "Python $* cannot be tested: no python$* on the PATH makes an environment, and uv finds none. \
	Install it, or name those to test: make $(MAKECMDGOALS) PYTHONS=\"...\"" >&2; exit 2; }
	@$(INSTALL) --python $(@D)/bin/python --require-hashes -r requirements.lock
	PYTHONWARNINGS=ignore $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	--no-build-isolation --config-settings editable_mode=strict --editable .
	touch $@

## Seeded schedules of faults against the core: make simulate SEEDS=1000 SEED=7. The last line is JSON.
simulate: sync
	@$(BIN)/python -m tests.simulator --seeds $(SEEDS) $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) --json

short-demo: sync
	$(BIN)/sluicegate demo --rows $(FLIGHTS) --kill-coordinator --json

## Measure every figure of docs/benchmarks.md again, on a quiet machine: about 45 minutes.
bench: sync
	$(BIN)/python -m tools.bench all $(ARGS)

## The site of the documentation in site/, with every link checked. It needs no internet.
docs: sync
	$(BIN)/python -m tools.docs.build

format: sync
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/ruff check --fix $(CHECKED)

## The environment in .venv, from the lock file and nothing else.
sync: $(VENV)/.synced

# uv, with its hashes.
$(VENV)/.uv: requirements.lock
	@test -n "$(PYTHON)" || { echo "Sluicegate needs Python 3.11 to 3.13; none was found. \
	Install one, or name it: make PYTHON=/path/to/python" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@awk '/^uv==/ { found = 1 } found { print } found && !/\\$$/ { exit }' requirements.lock > $(VENV)/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt
	@touch $@

$(VENV)/.installed: $(VENV)/.uv
	@echo "Installing what requirements.lock names into $(VENV): 2.6 GB, some minutes, once."
	@$(INSTALL) --python $(BIN)/python --require-hashes -r requirements.lock || { \
	echo "uv could not; pip tries." >&2; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; }
	@touch $@

# What the demo needs, in the versions of the lock file.
$(VENV)/.demo: $(VENV)/.uv pyproject.toml $(SOURCES)
	@echo "Installing what the demo needs into $(VENV): 1.4 GB, a minute or two, once."
	@$(INSTALL) --python $(BIN)/python --constraint requirements.lock --build-constraint requirements.lock \
	--editable ".[demo,delta,iceberg]" || { echo "uv could not; pip installs all." >&2; $(MAKE) --no-print-directory sync; }
	@touch $@

# Strict: type checkers see the packages where the mapping of pyproject.toml puts them. The warnings are of files that
# the wheel has, and of the folder build/, which `clean` removes together with the environment.
$(VENV)/.synced: $(VENV)/.installed pyproject.toml $(SOURCES)
	rm -rf build *.egg-info
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	--config-settings editable_mode=strict --editable .
	touch $@

## Renew the lock file; it names versions and hashes, no index.
# The extras of one release of Spark each exclude one another; `demo` brings `spark`, `paimon` and `embedded`.
lock:
	$(UV) pip compile --universal $(LOCKED:%=--extra %) --group dev --group docs --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --quiet pyproject.toml -o requirements.lock

## The sdist, the wheel and the bill of materials of a release, in dist/.
dist: sync
	rm -rf dist
	$(BIN)/uv build --quiet --build-constraint requirements.lock --out-dir dist .
	.ci/sbom dist/*.whl dist/sluicegate.cdx.json
	rm -f dist/.gitignore

## Compare the tag of a release with its version and its changelog: make release-check TAG=v0.1.0
release-check:
	.ci/release-check "$(TAG)"

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
