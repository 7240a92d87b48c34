# Everything a developer or CI runs. `make help` lists it.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export CGO_ENABLED ?= 1
TOOLS := build/tools
# Cached binaries of pinned tools; `go tool` would link them anew for each call from another folder.
TOOLBIN := $(CURDIR)/bin/tools
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

UNIT_PACKAGES = $(shell go list ./... | grep -v /test/)
TIMEOUT ?= 30m
GOTEST = go test -race -timeout $(TIMEOUT)

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binaries into bin/
	@mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/seamark-dev/seamark/internal/version.version=$(VERSION)" -o bin/ ./cmd/...

.PHONY: test
test: setup test-unit test-integration test-alerts test-e2e ## Run every test (builds Kubernetes first if it is not cached)

.PHONY: test-unit
test-unit: ## Run the tests beside the code
	$(GOTEST) $(UNIT_PACKAGES)

.PHONY: test-integration
test-integration: kube ## Run the tests against real Kubernetes API servers
	$(GOTEST) ./test/...

.PHONY: test-alerts
test-alerts: ## Check the alert rules with promtool
	@test/monitoring/promtool.sh

.PHONY: test-e2e
test-e2e: ## Run the tests with real pods
	@echo "no end-to-end tests yet: they arrive with the sandbox"

.PHONY: bench
bench: bench-control-plane ## Run the benchmarks
	go test -run '^$$' -bench . -benchmem ./internal/merge/

.PHONY: bench-control-plane
bench-control-plane: kube ## Measure exports beside the bare chain (about five minutes; BENCH=-quick for one)
	go run ./test/bench/controlplane $(BENCH)

.PHONY: demo
demo: setup ## Show the main job on three real control planes (builds what is missing)
	@go run ./test/demo

.PHONY: generate
generate: $(TOOLBIN)/controller-gen ## Generate deepcopy code and CRDs from the types
	rm -f deploy/crds/*.yaml
	$(TOOLBIN)/controller-gen object crd:crdVersions=v1 paths=./api/... output:crd:dir=deploy/crds

.PHONY: lint
lint: $(TOOLBIN)/golangci-lint ## Check format, vet and golangci-lint
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); [[ -z "$$unformatted" ]] || { echo "not gofmt'ed: $$unformatted"; exit 1; }
	go vet ./...
	$(TOOLBIN)/golangci-lint run ./...

.PHONY: kube
kube: ## Build Kubernetes for the tests into the cache (about ten minutes, once)
	@go run ./build/parts kube

.PHONY: node-parts
node-parts: ## Build containerd and the CNI plugins into the cache (about four minutes, once)
	@go run ./build/parts node

.PHONY: setup
setup: ## Check what the tests need and say what is missing
	@command -v go >/dev/null || { echo "Go 1.26 or newer is needed: https://go.dev/dl"; exit 1; }
	@command -v gcc >/dev/null || { echo "installing gcc: the race detector needs it"; apt-get update -q && apt-get install -qy gcc libc6-dev; }

.PHONY: clean
clean: ## Remove what was built here (the cache of Kubernetes stays; it is in the user's cache folder)
	rm -rf bin

$(TOOLBIN)/controller-gen: $(TOOLS)/go.mod $(TOOLS)/go.sum
	@echo "building controller-gen"; mkdir -p $(@D); cd $(TOOLS) && go build -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(TOOLBIN)/golangci-lint: $(TOOLS)/go.mod $(TOOLS)/go.sum
	@echo "building golangci-lint (a minute or two, once)"; mkdir -p $(@D); cd $(TOOLS) && go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
