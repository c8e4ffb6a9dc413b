# What a person types. Each target first installs what it needs (scripts/setup, quick when all is there).

PREFIX ?= /usr/local
DESTDIR ?=
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help demo build test test-kernels test-long dist check bench install fmt clean

help: ## say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

demo: ## record a bundled workload for real, report on it, draw a flame graph into demo/
	@scripts/setup build workloads
	@scripts/demo

build: ## rawstack and rawstack-record, optimised, into target/release
	@scripts/setup build
	cargo build --release --locked --workspace --bins

test: ## every test, those that load BPF and record included (asks sudo for them when not root)
	@scripts/setup build workloads test
	@scripts/test

test-kernels: ## record on other kernels, from 5.10 to the newest, each booted in QEMU (some minutes; no KVM, no root)
	@scripts/setup build dist vm
	@tests/vm/run $(SERIES)

test-long: ## Spark reads an export, gdb unwinds 10,000 stacks, every fuzz target for a minute (nightly Rust)
	@scripts/setup build test
	@scripts/test-long

check: ## format, lints, documentation, licences, sizes, and a symbolizer built without clang
	@scripts/setup build workloads dist check
	@scripts/check

bench: ## measure Rawstack and its peers side by side, into target/bench
	@scripts/setup build workloads bench
	@scripts/bench

dist: ## what is shipped: two static programs that need no library, and a tarball, into dist/
	@scripts/setup build dist
	@scripts/dist

install: build ## into $(DESTDIR)$(PREFIX), default /usr/local
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/doc/rawstack'
	install -s -m 755 '$(TARGET_DIR)/release/rawstack' '$(TARGET_DIR)/release/rawstack-record' '$(DESTDIR)$(PREFIX)/bin'
	install -m 644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE '$(DESTDIR)$(PREFIX)/share/doc/rawstack'

fmt: ## format the Rust and the C sources
	@scripts/setup build check
	cargo fmt --all
	git ls-files '*.c' '*.h' '*.cpp' ':!tests/fixtures' | xargs -r clang-format -i

clean: ## remove what was built
	cargo clean
	rm -rf demo dist
