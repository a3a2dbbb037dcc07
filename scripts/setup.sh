#!/usr/bin/env bash
# Installs what bpfcost needs beyond a Rust toolchain, on Debian 12 or newer. Looks first, so that
# a machine that has everything is done in a fraction of a second, and says what it installs and why.
# Run it from anywhere, as often as you like.
set -euo pipefail

# A root shell that came from plain `su` lacks these, and dpkg needs them.
PATH=$PATH:/usr/sbin:/sbin

usage() {
    cat <<'END'
usage: scripts/setup.sh [run|test|lint|dist|all]

  run    packages for building and measuring
  test   those of run, and those of the tests (a browser for the report)
  lint   those of run, and formatters and checkers
  dist   those of run, and those that make a release
  all    those of run, test and lint (the default)
END
}

# Purpose, Debian package, reason. Everything needs the packages of `run`.
packages() {
    cat <<'END'
run  ca-certificates  lets cargo fetch crates over TLS
run  gcc              compiles libbpf, links Rust programs
run  libc6-dev        C headers and start files for the two
run  make             runs the Makefile and libbpf's own
run  pkg-config       finds libelf and zlib
run  libelf-dev       libbpf reads BPF objects with it
run  zlib1g-dev       libelf needs it
run  clang-19         compiles BPF C; older ones lack may_goto, which can_loop needs
run  qemu-system-x86  runs guests: other kernels, and exact counts
run  redis-server     the server of workload redis
run  redis-tools      its load, redis-benchmark
run  nginx-light      the server of workload nginx-ssl
run  openssl          makes its certificate
run  wrk              the load of nginx-ssl and l7-go
run  golang-go        compiles the server of workload l7-go; skipped if go is installed
run  iperf3           server and load of workload iperf3
run  iproute2         shows networks that a workload made
test kmod             loads modules in guests of some tests
test gnupg            signs the package archive that tests fetch kernels from
test xz-utils         packs a source for tests of kernel build
test bpftool          shows what is loaded, so that tests see nothing is left behind
test curl             queries the Go server of l7-go in a test
test libxdp1          its XDP programs, which a test times
test libbpf-tools     tracing tools that tests run with their programs in user space
test python3-pytest   runs the example of the wrapper for Python
test bpftrace         a tracer whose cost a test measures
test chromium         renders the HTML report in its test
lint clang-format-19  format of BPF C
lint shellcheck       checks of shell scripts
lint git              fetches the advisory database for cargo-deny
dist git              names the commit of a release
dist binutils         splits the program from its symbols
dist rpm              packs the .rpm
dist jq               writes the SBOM and the image
END
}

# The rows of a purpose. Releases are made by few, so that `all` leaves out what they take.
packages_for() {
    packages | awk -v purpose="$1" '$1 == "run" || $1 == purpose || purpose == "all" && $1 != "dist"'
}

# The version that deny.toml is written for. A newer one that is already there is left alone.
readonly CARGO_DENY=0.20.2

# Compares benchmarks in a test of our text for it. Newer ones need a newer Go than Debian 12 has.
readonly BENCHSTAT=v0.0.0-20230113213139-801c7ef9e5c5

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root_dir

say() { printf 'setup: %s\n' "$*" >&2; }

# die WHAT [WHY OR WHAT TO DO]...
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '  %s\n' "$line" >&2; done
    exit 1
}

# at_least WANTED HAVE: is version HAVE the WANTED one or newer?
at_least() { printf '%s\n%s\n' "$1" "$2" | sort --version-sort --check=quiet; }

check_cargo() {
    local wanted have
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$root_dir/Cargo.toml")
    if ! command -v cargo >/dev/null; then
        if [ -n "${SUDO_USER:-}" ]; then
            die "cargo is not in root's PATH" \
                "Run this without sudo: it asks for root where it needs it."
        fi
        die "cargo is not in PATH" \
            "bpfcost needs Rust $wanted or newer. If rustup is installed:" \
            ". \"\$HOME/.cargo/env\"    otherwise see https://www.rust-lang.org/tools/install"
    fi
    have=$(cargo --version 2>&1) || die "cargo does not run: $have"
    have=$(cut -d' ' -f2 <<<"$have")
    at_least "$wanted" "$have" || die "cargo is $have, and bpfcost needs Rust $wanted or newer" \
        "With rustup: rustup update stable (the packages of Debian 12 and 13 are too old)"
}

# The wanted packages that are not installed, one a line.
missing_packages() {
    local names installed
    names=$(packages_for "$1" | awk '{ print $2 }')
    # Another clang that the user chose takes the place of ours.
    if [ "${CLANG:-clang-19}" != clang-19 ] && command -v "$CLANG" >/dev/null; then
        names=$(grep -vx clang-19 <<<"$names")
    fi
    if command -v go >/dev/null; then
        names=$(grep -vx golang-go <<<"$names")
    fi
    # It fails when it does not know one of them; that is what is asked here.
    # shellcheck disable=SC2086 # one word per package
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $names 2>/dev/null || true)
    installed=$(sed -n 's/^installed //p' <<<"$installed")
    grep -vxF -f <(printf '%s\n' "$installed") <<<"$names" || true
}

# as_root COMMAND...
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# The file that says which services may be started (invoke-rc.d(8)). Servers that are measured are started by
# bpfcost, on ports of its own: those of the packages must not run beside them.
readonly POLICY=/usr/sbin/policy-rc.d
policy_is_ours=

forbid_services() {
    [ ! -e "$POLICY" ] || return 0
    policy_is_ours=yes
    printf '#!/bin/sh\n# Of bpfcost, while it installs packages.\nexit 101\n' | as_root tee "$POLICY" >/dev/null
    as_root chmod 755 "$POLICY"
}

# What is left when this script ends, however that happens.
clean_up() {
    rm -f "${log:-}"
    [ -z "$policy_is_ours" ] || as_root rm -f "$POLICY"
}

# Nothing on stdin, nothing asked, nothing hanging: output goes to the log, shown on failure.
apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes \
        -o DPkg::Lock::Timeout=300 -o Acquire::Retries=2 -o Acquire::http::Timeout=30 \
        -o Dpkg::Options::=--force-confold "$@" </dev/null >>"$log" 2>&1
}

install_packages() {
    local missing=$1 purpose=$2 name
    say "to install from Debian's packages:"
    while read -r name; do
        packages_for "$purpose" | awk -v name="$name" '$2 == name { sub(/^[^ ]+ +[^ ]+ +/, ""); printf "  %-16s %s\n", name, $0 }' >&2
    done <<<"$missing"

    if [ "$(id -u)" -ne 0 ]; then
        local by_hand="As root: apt-get update && apt-get install ${missing//$'\n'/ }"
        command -v sudo >/dev/null || die "installing packages needs root, and sudo is not installed" "$by_hand"
        sudo -n true 2>/dev/null || [ -t 0 ] ||
            die "installing packages needs root, and sudo asks for a password without a terminal" "$by_hand"
    fi

    log=$(mktemp)
    trap clean_up EXIT
    trap 'exit 130' INT TERM
    forbid_services
    # Some other source that is out of reach must not stop us: the installation will tell.
    apt update -o APT::Update::Error-Mode=any || say "cannot refresh some package lists; continuing with the existing ones"
    # shellcheck disable=SC2086 # one word per package
    if ! apt install --no-install-recommends $missing; then
        tail -n 5 "$log" >&2
        if grep -qE 'Unable to locate package|no installation candidate' "$log"; then
            if grep -qE 'Could not resolve|Could not connect|Failed to fetch|Temporary failure' "$log"; then
                die "the package lists are missing and cannot be fetched" "Check the network."
            fi
            die "this system's package sources lack a package that bpfcost needs (named above)" \
                "Use Debian 12 or newer, with main, updates and security enabled."
        elif grep -qE 'Could not resolve|Could not connect|Failed to fetch|Temporary failure' "$log"; then
            die "the packages cannot be fetched" "Check the network."
        fi
        die "apt-get install failed (its last lines are above)"
    fi
}

install_rust_components() {
    local missing=()
    cargo fmt --version >/dev/null 2>&1 || missing+=(rustfmt)
    cargo clippy --version >/dev/null 2>&1 || missing+=(clippy)
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v rustup >/dev/null ||
        die "this Rust toolchain lacks ${missing[*]}, and rustup is not installed" \
            "Install it from the source of the toolchain."
    say "adding to the Rust toolchain, for make lint: ${missing[*]}"
    rustup component add "${missing[@]}" >&2 ||
        die "rustup cannot add ${missing[*]}" "Check the network."
}

install_cargo_deny() {
    local have
    have=$(cargo deny --version 2>/dev/null | cut -d' ' -f2 || true)
    if [ -n "$have" ] && at_least "$CARGO_DENY" "$have"; then return 0; fi
    say "compiling cargo-deny $CARGO_DENY (checks licences and sources of dependencies); once, 1 to 2 minutes"
    # Its release profile optimises for minutes what here runs for a second or two.
    env -u CARGO_TARGET_DIR -u CARGO_BUILD_TARGET_DIR \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=0 \
        cargo install --quiet --locked --root "${CARGO_HOME:-$HOME/.cargo}" --version "$CARGO_DENY" cargo-deny >&2 ||
        die "cargo-deny cannot be built" "Check the network. Only make lint needs cargo-deny."
}

# Into a folder of the user's own. Only one test needs it, which is skipped without it.
install_benchstat() {
    local folder=${XDG_DATA_HOME:-$HOME/.local/share}/bpfcost/bin
    if [ -x "$folder/benchstat" ] || command -v benchstat >/dev/null; then return 0; fi
    say "installing benchstat $BENCHSTAT (reads our benchmark text in a test) into $folder"
    if ! GOBIN=$folder GOFLAGS='' timeout 120 go install "golang.org/x/perf/cmd/benchstat@$BENCHSTAT" >&2; then
        say "cannot install benchstat: its test will be skipped; check the network"
    fi
}

main() {
    local purpose=${1:-all} missing
    case $purpose in
    run | test | lint | dist | all) ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
    [ $# -le 1 ] || { usage >&2 && exit 2; }

    check_cargo
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        die "this is not a Debian-like system: it has no dpkg-query or apt-get" \
            "Install the equivalents of these packages, then build with cargo:" \
            "$(packages_for "$purpose" | awk '{ print $2 }' | paste -sd' ')"
    fi
    missing=$(missing_packages "$purpose")
    [ -z "$missing" ] || install_packages "$missing" "$purpose"
    case $purpose in
    test | all) install_benchstat ;;
    esac
    case $purpose in
    lint | all)
        install_rust_components
        install_cargo_deny
        ;;
    esac
}

main "$@"
