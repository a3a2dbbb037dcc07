#!/usr/bin/env bash
# Installs libbpfcost_uprobe from a build of crates/uprobe/c: the libraries, the header and the pkg-config file.
set -euo pipefail

usage() {
    cat <<'END'
usage: [PREFIX=/usr/local] [DESTDIR=] scripts/install-c.sh [FOLDER]

  FOLDER   where cargo built it (default: target/release)
  PREFIX   where it will be used
  DESTDIR  a folder to install into, in front of PREFIX, for packages
END
}

# die WHAT [WHY OR WHAT TO DO]...
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '  %s\n' "$line" >&2; done
    exit 1
}

case ${1:-} in -*) usage >&2 && exit 2 ;; esac
[ $# -le 1 ] || { usage >&2 && exit 2; }

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
built=${1:-${CARGO_TARGET_DIR:-$root_dir/target}/release}
prefix=${PREFIX:-/usr/local}
case $prefix in
/*) ;;
*) die "PREFIX is $prefix, and has to begin with /" ;;
esac
into=${DESTDIR:-}$prefix
source=$root_dir/crates/uprobe/c
version=$(sed -n 's/^version *= *"\(.*\)"/\1/p' "$root_dir/Cargo.toml" | head -n 1)

[ -e "$built/libbpfcost_uprobe_c.so" ] || die "$built has no libbpfcost_uprobe_c.so" \
    "Build it: cargo build --release --locked --package bpfcost-uprobe-c"
# The name by which programs look for it, which the build has put into it: libbpfcost_uprobe.so.0.1, for one.
soname=$(grep -aoE 'libbpfcost_uprobe\.so\.[0-9.]+' "$built/libbpfcost_uprobe_c.so" | head -n 1) ||
    die "$built/libbpfcost_uprobe_c.so has no name for programs that need it"

if ! { mkdir -p "$into/lib/pkgconfig" "$into/include" 2>/dev/null && [ -w "$into/lib" ]; }; then
    die "$into can't be written" "Set PREFIX, or run as root: PREFIX=$prefix $0 $built"
fi
install -m 644 "$source/include/bpfcost_uprobe.h" "$into/include"
install -m 644 "$built/libbpfcost_uprobe_c.a" "$into/lib/libbpfcost_uprobe.a"
install -m 755 "$built/libbpfcost_uprobe_c.so" "$into/lib/libbpfcost_uprobe.so.$version"
ln -sf "libbpfcost_uprobe.so.$version" "$into/lib/$soname"
ln -sf "libbpfcost_uprobe.so.$version" "$into/lib/libbpfcost_uprobe.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$source/bpfcost_uprobe.pc.in" \
    >"$into/lib/pkgconfig/bpfcost_uprobe.pc"
chmod 644 "$into/lib/pkgconfig/bpfcost_uprobe.pc"
