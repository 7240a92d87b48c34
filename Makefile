# What developers and CI run. `make help` lists the targets.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Git refuses to work in a checkout that another user owns, and Go would then fail to build. The
# version comes from VERSION instead.
export GOFLAGS := $(strip $(shell go env GOFLAGS 2>/dev/null) -buildvcs=false)
TOOLS := build/tools
# Binaries of pinned tools; `go tool` would link them again for each call from another folder.
TOOLBIN := $(CURDIR)/bin/tools
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

UNIT_PACKAGES = $(shell go list ./... | grep -v /test/)
# The slowest packages come first, so that none of them runs alone at the end. A package that is
# named twice runs once.
INTEGRATION_PACKAGES = $(addprefix ./test/integration/,faults operate migrate chart cli random) $(shell go list ./test/... | grep -v /test/e2e/)
# The tests of failovers, in clusterset, have the machine for themselves.
E2E_PACKAGES = $(shell go list ./test/e2e/...)
TIMEOUT ?= 45m
# Number of test packages that run in parallel. They wait for API servers some of the time, so it is
# more than the number of cores of a small machine.
TEST_PARALLEL ?= 3
# Factor for the timeouts of tests: several packages share the CPU here.
export SEAMARK_TEST_PATIENCE ?= 3
# With SHORT=1, as in CI, most steps of test/e2e/clusterset run with one data plane only.
export SEAMARK_TEST_SHORT = $(SHORT)
# No vet, which `make lint` runs; no debug information, which tests do not need; and less garbage
# collection, for which there is enough memory.
GOTEST = GOGC=300 go test -race -vet=off -ldflags=-w -timeout $(TIMEOUT)

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binaries into bin/
	@mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/seamark-dev/seamark/internal/daemon/version.version=$(VERSION)" -o bin/ ./cmd/...

.PHONY: test
test: test-unit test-integration test-ui test-alerts test-e2e ## Run all tests (builds Kubernetes first if it is not cached)

.PHONY: test-unit
test-unit: setup ## Run the unit tests
	$(GOTEST) $(UNIT_PACKAGES)

.PHONY: test-integration
test-integration: setup kube lighthouse ## Run the tests against real Kubernetes API servers and a real kernel
	$(GOTEST) -p $(TEST_PARALLEL) $(INTEGRATION_PACKAGES)

# The page in a real browser, in a module of its own: what drives the browser is no dependency of ours.
.PHONY: test-ui
test-ui: setup kube ## Test the page in headless Chromium (screenshots: SEAMARK_SCREENSHOTS, or seamark-screenshots in the temporary folder)
	cd test/browser && $(GOTEST) ./...

# How long to simulate: a duration (10m), or a number of histories (50000).
SIM ?= 10m
.PHONY: sim
sim: ## Play random histories of a simulated clusterset (SIM=10m, or SIM=50000 histories)
	go test -vet=off -ldflags=-w -timeout 24h -count=1 -v -run TestHistories ./test/sim -sim.first=$$RANDOM$$RANDOM \
	  -sim.processes=$$(nproc) $(if $(filter %s %m %h,$(SIM)),-sim.duration=$(SIM),-sim.histories=$(SIM))

.PHONY: sim-teeth
sim-teeth: ## Take the mends out of the agent one by one and show which the simulator misses (15 to 30 minutes)
	go run ./test/sim/teeth $(TEETH)

.PHONY: test-alerts
test-alerts: ## Check the alert rules with promtool
	@test/monitoring/promtool.sh

.PHONY: test-e2e
test-e2e: setup kube node-parts lighthouse ## Run the tests with real pods in real clusters (needs root; SHORT=1 for most steps with one data plane)
	go test -p 2 -timeout 50m $(filter-out %/clusterset,$(E2E_PACKAGES))
	go test -timeout 50m $(filter %/clusterset,$(E2E_PACKAGES))

.PHONY: bench
bench: bench-control-plane bench-dns bench-data-plane ## Run all benchmarks (about an hour; BENCH=-quick for ten minutes)
	go test -run '^$$' -bench . -benchmem ./internal/merge/ ./internal/agent/vip/ ./internal/dns/zone/

.PHONY: bench-control-plane
bench-control-plane: kube ## Compare exports with the bare chain (half an hour; BENCH=-quick for three minutes)
	go run ./test/bench/controlplane $(BENCH)

.PHONY: bench-dns
bench-dns: kube setup-bench ## Compare DNS with CoreDNS's own plugin and a constant answer
	go run ./test/bench/dns $(BENCH)

.PHONY: bench-data-plane
bench-data-plane: kube setup-bench ## Compare the nftables data plane with kube-proxy (needs root)
	go run ./test/bench/dataplane $(BENCH)

.PHONY: bench-scale
bench-scale: kube ## Measure many members on one broker (ends after 30 minutes at the latest; BENCH=-quick for ten)
	go run ./test/scale $(BENCH)

.PHONY: bench-ui
bench-ui: setup ## Measure the page with 250 clusters and 5,000 services (two minutes; BENCH="-services 1000")
	cd test/browser && go run ./bench $(BENCH)

.PHONY: demo
demo: setup ## Show Seamark on three real clusters with pods (needs root; DEMO=--keep leaves them running, with a page about them)
	@go run ./test/demo $(DEMO)

.PHONY: images
images: ## Build the image of the daemons into bin/seamark-image.tar
	@mkdir -p bin
	go run ./build/images -o bin/seamark-image.tar

.PHONY: chart
chart: ## Package the Helm chart into bin/
	@mkdir -p bin
	go run ./cmd/seamark chart package bin

# The program has the version that it releases. The platforms are all, or those in PLATFORMS.
RELEASE = go run -trimpath -ldflags "-X github.com/seamark-dev/seamark/internal/daemon/version.version=$(VERSION)" ./build/release \
  -o bin/release $(if $(PLATFORMS),-platforms $(PLATFORMS))

.PHONY: release
release: ## Make a release of the tag of this commit into bin/release (docs/releasing.md)
	$(RELEASE)

.PHONY: release-verify
release-verify: ## Build the release again in another folder with an empty cache, and compare
	$(RELEASE) -verify $(VERIFY)

.PHONY: generate
generate: $(TOOLBIN)/controller-gen $(TOOLBIN)/crd-ref-docs ## Generate deepcopy code, CRDs and the API reference
	rm -f deploy/crds/*.yaml
	$(TOOLBIN)/controller-gen object crd:crdVersions=v1 paths=./api/... output:crd:dir=deploy/crds
	$(TOOLBIN)/crd-ref-docs --source-path=./api --config=build/tools/api-reference.yaml --renderer=markdown --output-path=docs/api-reference.md --log-level=ERROR

.PHONY: lint
lint: setup $(TOOLBIN)/golangci-lint ## Run gofmt, go vet and golangci-lint
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); [[ -z "$$unformatted" ]] || { echo "not gofmt'ed: $$unformatted"; exit 1; }
	go vet ./...
	$(TOOLBIN)/golangci-lint run ./...
	cd test/browser && go vet ./... && $(TOOLBIN)/golangci-lint run ./...

# Not part of lint: the first run compiles all dependencies for both systems, which takes minutes.
.PHONY: vet-platforms
vet-platforms: ## Run go vet for the command line on macOS and Windows
	for os in darwin windows; do \
	  export CGO_ENABLED=0 GOOS=$$os GOARCH=arm64; [[ $$os == darwin ]] || GOARCH=amd64; \
	  go vet -trimpath $$(go list -deps ./cmd/seamark | grep '^github.com/seamark-dev/'); \
	done

.PHONY: kube
kube: ## Build Kubernetes for the tests into the cache (about ten minutes, once)
	@go run ./build/parts kube

.PHONY: node-parts
node-parts: ## Build containerd and the CNI plugins into the cache (about four minutes, once)
	@go run ./build/parts node

.PHONY: lighthouse
lighthouse: ## Build Submariner's operator and lighthouse-agent for the tests of migrations into the cache (about four minutes, once)
	@go run ./build/parts lighthouse

# Programs that the tests and the sandbox use, and their Debian packages.
NEEDED = gcc:gcc nft:nftables runc:runc ip:iproute2 conntrack:conntrack nsenter:util-linux chromium-headless-shell:chromium-headless-shell
NEEDED_BENCH = dnsperf:dnsperf taskset:util-linux

.PHONY: setup
setup: ## Install the programs that the tests need
	@command -v go >/dev/null || { echo "Go 1.26 or newer is needed: https://go.dev/dl"; exit 1; }
	@$(call ensure,$(NEEDED) /usr/include/stdio.h:libc6-dev /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf:fonts-dejavu-core)

.PHONY: setup-bench
setup-bench: setup
	@$(call ensure,$(NEEDED_BENCH))

# ensure installs the packages of missing programs (or files).
define ensure
	missing=""; for need in $(1); do \
	  case "$$need" in /*) test -e "$${need%%:*}" ;; *) PATH="$$PATH:/usr/sbin:/sbin" command -v "$${need%%:*}" >/dev/null ;; esac || missing="$$missing $${need##*:}"; \
	done; \
	if [[ -n "$$missing" ]]; then \
	  [[ $$(id -u) == 0 ]] || { echo "missing:$$missing; install them, or run this as root"; exit 1; }; \
	  echo "installing$$missing"; apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -qy $$missing >/dev/null; \
	fi
endef

.PHONY: clean
clean: ## Remove bin/ (the built Kubernetes stays in the user's cache folder)
	rm -rf bin

$(TOOLBIN)/controller-gen: $(TOOLS)/go.mod $(TOOLS)/go.sum
	@echo "building controller-gen"; mkdir -p $(@D); cd $(TOOLS) && go build -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(TOOLBIN)/crd-ref-docs: $(TOOLS)/go.mod $(TOOLS)/go.sum
	@echo "building crd-ref-docs"; mkdir -p $(@D); cd $(TOOLS) && go build -o $@ github.com/elastic/crd-ref-docs

$(TOOLBIN)/golangci-lint: $(TOOLS)/go.mod $(TOOLS)/go.sum
	@echo "building golangci-lint (a minute or two, once)"; mkdir -p $(@D); cd $(TOOLS) && go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
