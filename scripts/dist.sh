#!/usr/bin/env bash
# Makes all that is published, in dist/: a static program for x86-64, its debug file, packages, an image, an SBOM, licences
# and checksums. The same commit gives the same bytes in any folder, with the same toolchain and packages: see
# docs/release.md, and scripts/dist-twice.sh, which compares two builds. Nothing is published here.
set -euo pipefail

# A language or a mask of the user's own would change what is packed.
export LC_ALL=C TZ=UTC
umask 022

readonly TARGET=x86_64-unknown-linux-gnu
readonly MAX_MIB=25
readonly NAME_LOOKUPS='getaddrinfo|getnameinfo|gethostby(name|name2|addr)(_r)?|getservby(name|port)(_r)?|getpw(nam|uid|ent)(_r)?|getgr(nam|gid|ent)(_r)?|getgrouplist|initgroups'

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly root_dir
cd "$root_dir"

say() { printf 'dist: %s\n' "$*" >&2; }

# die WHAT [WHY OR WHAT TO DO]...
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '  %s\n' "$line" >&2; done
    exit 1
}

check_tools() {
    local tool
    for tool in cargo git jq rpmbuild dpkg-deb objcopy readelf nm addr2line; do
        command -v "$tool" >/dev/null || die "$tool is not installed" "Install it: scripts/setup.sh dist"
    done
    [ "$(uname -m)" = x86_64 ] || die "releases are made on x86-64, and this is $(uname -m)"
}

# Sets what identifies the release: its version, its commit and the time of that commit.
identify() {
    VERSION=$(sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1)
    BPFCOST_COMMIT=$(git rev-parse HEAD) || die "the commit is unknown" "Make releases in a git repository."
    if [ -n "$(git status --porcelain)" ]; then BPFCOST_COMMIT+=-dirty; fi
    unset SOURCE_DATE_EPOCH
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export VERSION BPFCOST_COMMIT BPFCOST_PROFILE=dist
}

# Builds the program and what writes its manual. Folders of this machine are renamed in both.
build() {
    local name cargo_home=${CARGO_HOME:-$HOME/.cargo} registry sysroot flags
    registry=$cargo_home/registry/src
    sysroot=$(rustc --print sysroot)
    # Settings of other builds on this machine.
    for name in $(compgen -e | grep -E '^(CARGO_(PROFILE|BUILD|TARGET_X86_64)_.*|CARGO_ENCODED_RUSTFLAGS)$'); do
        unset "$name"
    done
    export CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$target_dir
    flags="-C target-feature=+crt-static --remap-path-prefix=$root_dir=. --remap-path-prefix=$registry=/cargo"
    export CFLAGS="-ffile-prefix-map=$root_dir=. -ffile-prefix-map=$registry=/cargo"
    # The last that fits is taken.
    if [ "$target_dir" != "$root_dir/target" ]; then
        flags+=" --remap-path-prefix=$target_dir=./target"
        CFLAGS+=" -ffile-prefix-map=$target_dir=./target"
    fi
    # With the component rust-src, the standard library has paths of this machine; without it, these.
    if [ -d "$sysroot/lib/rustlib/src/rust" ]; then
        flags+=" --remap-path-prefix=$sysroot/lib/rustlib/src/rust=/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')"
    fi
    # rustc does not look for static libraries where Debian has them.
    export RUSTFLAGS=$flags LIBBPF_SYS_LIBRARY_PATH_x86_64_unknown_linux_gnu=/usr/lib/x86_64-linux-gnu
    # Addresses to relocate, packed: a megabyte less.
    cargo rustc --profile dist --locked --target "$TARGET" --package bpfcost --bin bpfcost --features static -- \
        -C link-arg=-Wl,-z,pack-relative-relocs
    cargo build --profile dist --locked --target "$TARGET" --package bpfcost-manual --features bpfcost/static
}

# Splits the program into what runs, and symbols and lines for backtraces. Both keep their names wherever they go: the
# program names the other.
split() {
    objcopy --only-keep-debug --compress-debug-sections=zlib "$built/bpfcost" "$new/bpfcost.debug"
    chmod 644 "$new/bpfcost.debug"
    objcopy --strip-all "$built/bpfcost" "$new/bpfcost"
    (cd "$new" && objcopy --add-gnu-debuglink=bpfcost.debug bpfcost)
}

# Refuses a program that would not run everywhere, or that names this machine.
check_program() {
    local mib names address
    names=$("$new/bpfcost" --version)
    [[ $names == *"dist, x86_64-linux, static"* ]] || die "the program does not say that it is static, but $names"
    if readelf --program-headers --dynamic --wide "$new/bpfcost" | grep -E 'INTERP|NEEDED' >&2; then
        die "the program needs libraries of the machine that it runs on"
    fi
    # They would load libraries of the machine's name service, of whatever glibc it has.
    names=$(nm --defined-only "$built/bpfcost" | awk '{ print $NF }' | grep -xE "$NAME_LOOKUPS" | paste -sd' ' || true)
    [ -z "$names" ] || die "the program looks up names of hosts, users or services: $names" \
        "A static program would load libraries of the machine for that."
    # Folders in which this was built; not those of Debian's libraries.
    names=$(strings -n 6 "$new/bpfcost" | grep -F -e "$root_dir/" -e "$target_dir/" -e "${CARGO_HOME:-$HOME/.cargo}/" |
        head -n 3 || true)
    [ -z "$names" ] || die "the program names folders of this machine:" "$names"
    # With the debug file beside it, as for a backtrace.
    address=$(nm --defined-only "$built/bpfcost" | awk '/7bpfcost3cli4main/ { at = $1 } END { print at }')
    names=$(addr2line --exe "$new/bpfcost" "0x$address")
    [[ $names =~ crates/bpfcost/src/cli/mod\.rs:[0-9] ]] ||
        die "bpfcost.debug does not show the lines of the program, but $names"
    mib=$(($(stat -c %s "$new/bpfcost") >> 20))
    [ "$mib" -lt $MAX_MIB ] || die "the program has $mib MiB, and may have $MAX_MIB"
}

main() {
    check_tools
    identify
    target_dir=${CARGO_TARGET_DIR:-$root_dir/target}
    built=$target_dir/$TARGET/dist
    export new=$target_dir/dist.new work=$target_dir/dist.work TARGET
    say "bpfcost $VERSION of commit $BPFCOST_COMMIT"
    build
    # Not while it is built: no source has its time, and C libraries would be built again with each commit.
    export SOURCE_DATE_EPOCH
    rm -rf "$new" "$work"
    mkdir -p "$new" "$work"
    split
    check_program
    "$built/bpfcost-manual" "$work/manual"
    scripts/dist-licences.sh
    scripts/dist-packages.sh
    install -m 755 scripts/install.sh "$new/install.sh"
    (cd "$new" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
    rm -rf dist "$work"
    mv "$new" dist
    say "made:"
    (cd dist && stat -c '%s %n' -- *) | awk '{ printf "  %8.2f MB  %s\n", $1 / 1e6, $2 }' >&2
}

[ $# -eq 0 ] || { echo "usage: scripts/dist.sh" >&2 && exit 2; }
main
