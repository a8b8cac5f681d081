# make            this list
# make deps       install what build, tests and demo need (Debian 12, root)
# make build      bin/dunnage, bin/dunnage-hook; bin/actor and bin/bench for tests
# make test       every tier: unit, then the VM on 6.12 and 6.1
# make test-unit  without root and VM, under a minute
# make fuzz       every fuzz target for FUZZTIME (60s), and a table of what each did
# make bench      count what an open costs, and workloads, beside other LSMs
# make packages        bin/packages: the deb and the rpm
# make test-packages   install, upgrade and remove the deb in the VM, under systemd
# make test-containerd pods through the CRI of a containerd built for it
# make mutants    break the kernel part on purpose: the tests must notice
# make test-kubernetes the manifests of packaging/kubernetes
# make demo       a real PostgreSQL in a confined container
SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo devel)
BUILD := CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)"

.PHONY: help deps build generate check-generated lint test test-unit bench demo fuzz mutants packages test-packages release clean test-kubernetes test-containerd
help:
	@sed -n 's/^# make/make/p' Makefile

deps:
	test/deps

build:
	@mkdir -p bin
	$(BUILD) -o bin/dunnage ./daemon
	$(BUILD) -o bin/dunnage-hook ./hook
	$(BUILD) -o bin/actor ./test/actor
	$(BUILD) -o bin/bench ./test/bench

# The BPF object and its Go bindings are committed.
generate:
	$(GO) generate ./bpf

check-generated: generate
	@git diff --exit-code --stat -- bpf/kernel_x86_bpfel.go bpf/kernel_x86_bpfel.o bpf/trial_x86_bpfel.go bpf/trial_x86_bpfel.o \
		|| { echo "error: the committed BPF object is not what the source gives"; echo "hint: run make generate and commit the result"; exit 1; }

lint:
	@test -z "$$(gofmt -l bpf daemon hook policy test)" || { gofmt -l bpf daemon hook policy test; echo "hint: gofmt -w those files"; exit 1; }
	$(GO) vet ./...

test-unit:
	$(GO) test -short -timeout 120s ./bpf ./daemon ./hook/... ./policy/... ./test/imports

test: deps
	test/all

bench:
	test/bench/run

demo:
	test/demo/run

packages:
	packaging/build

test-packages: build packages
	DEST=bin/upgrade VERSION=99.0.0 packaging/build
	$(GO) test -c -o bin/e2e.test ./test/e2e
	test/vm/run --no-build --systemd --timeout 400 -- bin/e2e.test -test.v -test.run TestPackages

test-containerd: build
	$(GO) test -c -o bin/e2e.test ./test/e2e
	test/vm/run --no-build --daemon --memory 6144 --timeout 900 -- env DUNNAGE_CONTAINERD="$$(test/vm/containerd)" bin/e2e.test -test.v -test.run TestContainerd

test-kubernetes:
	cd packaging/kubernetes && $(GO) test ./...

fuzz:
	test/fuzz

mutants:
	test/mutants/run

release:
	test/release/run

clean:
	rm -rf bin
