# What people and CI call by the same names. Every recipe is what you would type yourself.
# Nothing here runs cargo as root; only what measures does, through sudo where that is needed.

.DEFAULT_GOAL := help
.PHONY: help setup build run report atlas test test-planted examples mutants fuzz soak endurance miri tsan bench lint dist dist-twice package install-c clean

# The compiler of BPF C; build.rs reads it, and takes clang-19 by itself.
export CLANG ?= clang-19
CLANG_FORMAT ?= clang-format-19

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BPFCOST    := $(TARGET_DIR)/release/bpfcost

# Empty for root. Without sudo it stays empty too, and bpfcost names the capability that it lacks.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,$(if $(shell command -v sudo),sudo -E))
# What makes cargo run tests and benchmarks through that, as in CARGO_TARGET_X86_64_…_RUNNER="sudo -E". Tests set what
# they need of the machine.
RUN_BY   = CARGO_TARGET_$(shell rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)_RUNNER
RUNNER   = $(if $(AS_ROOT),$(RUN_BY)="$(AS_ROOT)")
TESTED   = $(RUN_BY)="$(AS_ROOT) $(CURDIR)/scripts/conditions.sh"

C_FILES  = $(shell find crates/*/blob crates/*/bpf crates/*/examples crates/*/plugin crates/uprobe/c \( -name '*.[ch]' -o -name '*.cpp' \) \
	! -name vmlinux.h 2>/dev/null)
SCRIPTS  = .ci/run $(wildcard scripts/*.sh)

help: ## Show this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: ## Install everything that run, test and lint need (Debian 12 or newer)
	@scripts/setup.sh all

build: ## Build the program
	@scripts/setup.sh run
	cargo build --release --locked --package bpfcost

run: build ## Measure the XDP load balancer on this machine and write report.html
	mkdir -p out
	$(AS_ROOT) $(BPFCOST) run xdp-lb --on host --out out/xdp-lb.json
	@$(MAKE) --no-print-directory report

report: ## Write report.html again, from the record of the last run
	$(BPFCOST) report out/xdp-lb.json -o report.html

atlas: build ## Measure every way to attach, on three kernels and here: docs/ATLAS.md
	$(BPFCOST) kernel add bookworm trixie sid
	rm -rf out/atlas
	mkdir -p out/atlas docs
	$(AS_ROOT) $(BPFCOST) run attach --on exact:6.1 --on exact:6.12 --on exact:7.2 --out out/atlas
	$(AS_ROOT) $(BPFCOST) run attach --on host --case '*/empty' --case '*/map' --case '*/ringbuf' --out out/atlas
	$(BPFCOST) report out/atlas -o docs/ATLAS.md

# One more at once than there are CPUs: many of them mostly wait.
test: export RUST_TEST_THREADS ?= $(shell expr $$(nproc) + 1)
test: ## Run all tests, the privileged ones as root
	@scripts/setup.sh test
	$(TESTED) cargo test --workspace --locked --no-fail-fast

# The suites that look at the machine's state, on one in which other tools have left theirs.
PLANTED = -p bpfcost-bpf --test attach -p bpfcost-uprobe --test trace -p bpfcost --test attach --test attaching --test cli \
	--test overhead

test-planted: export RUST_TEST_THREADS ?= $(shell expr $$(nproc) + 1)
test-planted: ## Run the tests that look at the machine, with sysctls, a tracepoint, a tracer and load of others planted
	@scripts/setup.sh test
	cargo test --locked --no-run $(PLANTED)
	$(AS_ROOT) scripts/plant.sh env $(TESTED) PATH="$$PATH" cargo test --locked --no-fail-fast $(PLANTED)

examples: build ## Run each command of README and docs/experiments that shows its output, with the release build
	@scripts/setup.sh test
	$(BPFCOST) kernel add trixie sid
	BPFCOST_EXAMPLES=$(abspath $(BPFCOST)) $(RUNNER) cargo test --locked -p bpfcost --test cli -- --ignored --nocapture \
		commands_with_their_output_run

mutants: ## Make every BPF program wrong in every small way, and count what the checks catch (OF="map.bpf.c jhash.h:56")
	@scripts/setup.sh test
	cargo build --locked --package bpfcost --features mutants --example mutants
	$(AS_ROOT) $(TARGET_DIR)/debug/examples/mutants $(OF)

soak: ## Interrupt 10^9 pairs of each pool, and count the objects (5 minutes)
	BPFCOST_SOAK=1000000000 cargo test --locked -p bpfcost-pool --test soak -- --nocapture

endurance: ## Kill 50 runs and 100 tools at random moments, and look for what they leave; servers that fork; wrong calls (30 minutes)
	@scripts/setup.sh test
	$(RUNNER) cargo test --locked -p bpfcost --test cli -- --ignored --nocapture many_kills
	$(RUNNER) cargo test --locked -p bpfcost-uprobe --test tool --test random_calls --test left --test reaper -- --ignored --nocapture many_

# What a nightly toolchain lacks for the next three is named, and skipped.
HAS_NIGHTLY = $(shell rustup component list --toolchain nightly --installed 2>/dev/null | grep -E '^($(1))')
NO_NIGHTLY  = echo "SKIPPED: no $(1) in a nightly toolchain; rustup component add --toolchain nightly $(1)"

FUZZ_SECONDS ?= 60

# Parsers are safe Rust, so that AddressSanitizer would see no more. What is found stays in fuzz/corpus and fuzz/artifacts.
fuzz: ## Give each parser damaged input, for a minute each
	@if ! cargo +nightly --version >/dev/null 2>&1; then \
		echo "SKIPPED: no nightly toolchain; rustup toolchain install nightly --profile minimal"; \
	elif ! cargo fuzz --version >/dev/null 2>&1; then \
		echo "SKIPPED: no cargo-fuzz; cargo install cargo-fuzz --locked"; \
	else \
		cp Cargo.lock crates/bpfcost/fuzz/ && cd crates/bpfcost && targets=$$(cargo +nightly fuzz list) || exit 1; \
		test -n "$$targets" || { echo "There is no target in crates/bpfcost/fuzz/fuzz_targets; see its Cargo.toml" >&2; exit 1; }; \
		for target in $$targets; do \
			mkdir -p fuzz/corpus/$$target || exit 1; \
			cargo +nightly fuzz run --sanitizer none $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
				-max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=4096 -verbosity=0 -print_final_stats=1 || exit 1; \
		done; \
	fi

# Of our own pools: unit tests, laws, values.
RACES = --locked -p bpfcost-pool --lib --test conformance --test objects

miri: ## Run the tests of our pools in Miri
	@$(if $(call HAS_NIGHTLY,miri),MIRIFLAGS=-Zmiri-preemption-rate=0.1 \
		cargo +nightly miri test $(RACES),$(call NO_NIGHTLY,miri))

tsan: ## Run the tests of our pools under ThreadSanitizer
	@$(if $(call HAS_NIGHTLY,rust-src),RUSTFLAGS=-Zsanitizer=thread \
		cargo +nightly test -Zbuild-std --target $(shell rustc -vV | sed -n 's/^host: //p') \
		$(RACES),$(call NO_NIGHTLY,rust-src))

bench: ## Run the benchmarks of the tool itself
	@scripts/setup.sh run
	$(RUNNER) cargo bench --workspace --locked

lint: ## Check format, licences, dependencies, scripts and docs, and run clippy
	@scripts/setup.sh lint
	cargo fmt --all --check
	$(if $(C_FILES),$(CLANG_FORMAT) --dry-run -Werror $(C_FILES))
	@if command -v gofmt >/dev/null; then \
		names=$$(gofmt -l crates/uprobe/go crates/uprobe/tests) && test -z "$$names" || { echo "lint: gofmt -w $$names"; exit 1; }; \
	else echo "lint: Go not checked: gofmt is not installed"; fi
	shellcheck $(SCRIPTS)
	cargo deny --log-level error check licenses bans sources
	@if GIT_TERMINAL_PROMPT=0 timeout 60 cargo deny --log-level off fetch db >/dev/null 2>&1; then \
		cargo deny --log-level error check --disable-fetch advisories; \
	else echo "lint: advisories not checked: their database cannot be fetched from here"; fi
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@if rustup target list --installed 2>/dev/null | grep -qx x86_64-unknown-none; then \
		cargo check --quiet --package bpfcost-pool --target x86_64-unknown-none --locked; \
	else echo "lint: bpfcost-pool not built without std: rustup target add x86_64-unknown-none"; fi
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet

dist: ## Make all that is published, in dist/ (docs/release.md)
	@scripts/setup.sh dist
	scripts/dist.sh

dist-twice: ## Make it twice, in two folders, and compare (20 CPU minutes)
	@scripts/setup.sh dist
	scripts/dist-twice.sh

package: ## Package the crates that make sense alone, and build the packages without clang (docs/release.md)
	@scripts/setup.sh dist
	scripts/package.sh

install-c: ## Install the C library of user-space probes (PREFIX, DESTDIR; docs/user-probes.md)
	@scripts/setup.sh run
	cargo build --release --locked --package bpfcost-uprobe-c
	scripts/install-c.sh $(TARGET_DIR)/release

clean: ## Remove what was built, measured and reported
	cargo clean
	rm -rf out report.html dist
