# Everything runs from the environment in .venv. Plain POSIX recipes: the make of macOS (3.81) and its shell run them too.
PY = .venv/bin/python
INSTALLED = .venv/installed
# One process more than there are cores; the tests that need Spark share one of them. Tests start hundreds of processes:
# without bytecode each compiles what it imports, which takes a fifth of a second.
PYTEST = PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n auto $(if $(SHARE),--share $(SHARE))
PIP = $(PY) -m pip install --quiet --disable-pip-version-check

# True where packages of the system may be installed without asking anybody.
MAY_APT = command -v apt-get >/dev/null 2>&1 && { [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
APT = $$([ "$$(id -u)" = 0 ] || echo sudo -n) env DEBIAN_FRONTEND=noninteractive apt-get -qq

# Debian's Alertmanager reads its templates from /usr/share, where only an installed package has files. A path of equal
# length in the unpacked program is the working directory.
TEMPLATES_OF_ALERTMANAGER = LC_ALL=C sed -i "s|/usr/share/prometheus/alertmanager|$$(printf '.%033d' 0 | tr 0 /)|" \
	usr/bin/prometheus-alertmanager

.PHONY: help setup java servers quick oldest test lint check demo bench soak fuzz prose lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## Make the environment in .venv: pinned packages and the command .venv/bin/wiretide

java: setup ## Find Java 17 or newer, or install it
	@$(PY) -m highlevel.spark.session.java
	@.venv/bin/wiretide doctor --compile >/dev/null  # set-up may have found no Java

servers: setup ## Fetch the servers of tests (Prometheus, Alertmanager, softflowd, nfdump) into .venv, and install Chromium; nothing is started
	@lacks() { (PATH="$$PATH:/usr/sbin:$$PWD/.venv/bin"; ! command -v "$$1" >/dev/null 2>&1); }; packages=; \
	lacks prometheus && packages="$$packages prometheus"; \
	lacks prometheus-alertmanager && packages="$$packages prometheus-alertmanager"; lacks softflowd && packages="$$packages softflowd"; \
	lacks nfcapd && packages="$$packages nfdump"; [ -n "$$packages" ] || exit 0; \
	if ! command -v dpkg-deb >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then \
	  echo "servers: no$$packages, and no apt-get to fetch them with; the tests that need them will be skipped"; exit 0; fi; \
	mkdir -p .venv/servers && cd .venv/servers || exit 1; \
	library() { apt-cache depends "$$1" 2>/dev/null | sed -n 's/.*Depends: \(libpcap[^ ]*\)$$/\1/p'; }; \
	fetch() { rm -f ./*.deb; apt-get -qq -o APT::Sandbox::User=root download "$$1" $$(library "$$1") 2>/dev/null; }; \
	wrap() { for each in "$$@"; do \
	  printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$$@"\n' "$$(echo "$$PWD"/usr/lib/*-linux-gnu*)" "$$PWD/$$each" >../bin/"$${each##*/}" \
	  && chmod +x ../bin/"$${each##*/}"; done; }; \
	updated=; for package in $$packages; do \
	  if { fetch $$package || { [ -z "$$updated" ] && updated=1 && $(MAY_APT) && $(APT) update && fetch $$package; }; } \
	    && for file in *.deb; do dpkg-deb -x "$$file" . || exit 1; done; then \
	    case $$package in \
	    prometheus) ln -sf ../servers/usr/bin/prometheus ../bin/prometheus ;; \
	    prometheus-alertmanager) $(TEMPLATES_OF_ALERTMANAGER) && \
	      ln -sf ../servers/usr/bin/prometheus-alertmanager ../bin/prometheus-alertmanager ;; \
	    softflowd) wrap usr/sbin/softflowd ;; \
	    nfdump) wrap usr/bin/nfcapd usr/bin/nfdump ;; \
	    esac; \
	  else echo "servers: apt-get could not fetch $$package; the tests that need it will be skipped"; fi; \
	done; rm -f ./*.deb
	@command -v chromium >/dev/null 2>&1 || { $(MAY_APT) && $(APT) update && \
	  $(APT) install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || \
	  echo "servers: no chromium, and apt-get could not install it; the tests that need it will be skipped"

quick: setup ## Run the tests of every module that need no Java and no server: three minutes on two cores
	@$(PYTEST) --quick

oldest: setup ## Run the tests of make quick with the oldest versions of packages that pyproject.toml allows
	@.venv/bin/uv venv --quiet --clear .venv/oldest
	@.venv/bin/uv pip install --quiet --python .venv/oldest/bin/python --resolution lowest-direct --editable '.[spark,plots,generate,fallback,frames,auth,dev]'
	@.venv/oldest/bin/wiretide doctor --compile
	@PYTHONDONTWRITEBYTECODE= .venv/oldest/bin/python -m pytest -n auto --quick

SHARE =

test: setup java servers ## Run all tests, with one random stream of five, or with one of SHARE
	@$(PYTEST)

lint: setup ## Check style, format and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

# mypy uses one core, so java and servers run beside lint. java and servers run in turn: both may call apt-get.
check: setup ## Run what CI runs: lint, format and types, then all tests (the documents' links among them)
	@$(MAKE) --no-print-directory lint & lint=$$!; $(MAKE) --no-print-directory java servers; status=$$?; \
	  wait $$lint && exit $$status
	@$(PYTEST)

demo: setup java ## Replay three generated links through the pipeline, with metrics for Prometheus
	@.venv/bin/wiretide demo

bench: setup java ## Measure everything; fails when a criterion does
	@$(PY) -m bench

ROUNDS = 50
FAULTS = 42
MINUTES = 30
SEED =

soak: setup java servers ## Kill processes at every moment and in ROUNDS rounds on a cluster (50); FAULTS (42); a pipeline for MINUTES (30); long random streams and queries
	@$(PYTEST) --soak tests/highlevel/spark/test_spark_crash.py tests/highlevel/spark/test_spark_spools.py \
	  tests/highlevel/spark/test_chaos.py tests/system/test_demo_signals.py \
	  tests/highlevel/spark/run_folder/test_state_changes.py tests/dashboards/alerts/test_alerts_run.py \
	  tests/highlevel/speculation/lifetimes tests/highlevel/patterns tests/highlevel/plan/operators/test_revision_properties.py \
	  tests/dashboards/changes/test_killed_runs.py tests/conformance/test_duckdb.py tests/bench/test_bench.py
	@$(PY) -m tests.harness.cluster_rounds --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))
	@$(PY) -m tests.harness.fault_rounds --faults $(FAULTS) $(if $(SEED),--seed $(SEED))
	@$(PY) -m bench soak --minutes $(MINUTES)

RUNS = 1000000
SECONDS = 0
TARGETS =

fuzz: setup ## Fuzz every decoder with RUNS inputs (1000000), or for SECONDS; TARGETS names some of them
	@[ -d .venv/fuzz/lib/atheris ] || $(PIP) --require-hashes --target .venv/fuzz/lib --requirement tests/fuzz/requirements.txt
	@PYTHONPATH=.venv/fuzz/lib $(PY) -m tests.fuzz --runs $(RUNS) --seconds $(SECONDS) $(TARGETS)

PATHS =

prose: setup ## List long and hard sentences of texts, in all files or in PATHS; informs and never fails
	@$(PY) -m tests.documents.prose $(PATHS)

lock: setup ## Resolve the dependencies anew into requirements.lock
	@.venv/bin/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url --no-header \
	  --all-extras --python-version 3.11 pyproject.toml --output-file requirements.lock

clean: ## Remove the environment and everything that was generated
	rm -rf .venv build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@find_python() { for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	  if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo "$$name"; return 0; fi; done; return 1; }; \
	python=$$(find_python) || { $(MAY_APT) && $(APT) update && $(APT) install -y python3 && python=$$(find_python); } || { \
	  echo "setup: got no Python 3.11 or newer on PATH; install one (python3 of Debian 12 or Ubuntu 24.04, or brew install python)" >&2; exit 1; }; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	  package=$$("$$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	  { $(MAY_APT) && $(APT) update && $(APT) install -y "$$package"; } || { \
	    echo "setup: $$python cannot make environments; install $$package" >&2; exit 1; }; fi; \
	"$$python" -m venv --clear .venv || { rm -rf .venv; exit 1; }

# pyspark comes as source: the setuptools of the lock builds it, not whichever is newest.
$(INSTALLED): requirements.lock pyproject.toml .venv/bin/python
	@awk '/^[a-z]/ { on = /^setuptools==/ } on' requirements.lock | $(PIP) --require-hashes --requirement /dev/stdin
	@$(PIP) --no-build-isolation --use-pep517 --require-hashes --requirement requirements.lock
	@$(PIP) --no-build-isolation --no-deps --editable .
	@.venv/bin/wiretide doctor --compile >/dev/null  # machine code for this user: the first query does not wait
	@touch $(INSTALLED)
