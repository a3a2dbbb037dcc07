#!/usr/bin/env bash
# Packages the crates that make sense alone, as crates.io takes them, and builds each package offline and without clang:
# BPF C is compiled here, and packed as objects. See docs/release.md. Nothing is published, but with the argument `publish`;
# further arguments are for `cargo publish`, as in `scripts/package.sh publish --dry-run`.
set -euo pipefail

export LC_ALL=C
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly SHIPPED=crates/uprobe/objects
readonly TARGET_DIR=${CARGO_TARGET_DIR:-target}/packages
# Cargo unpacks packages here that others need, and would take those of an earlier run again.
readonly UNPACKED=${CARGO_HOME:-$HOME/.cargo}/registry/src

# die WHAT [WHY OR WHAT TO DO]...
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '  %s\n' "$line" >&2; done
    exit 1
}

# A later package could have objects of earlier sources otherwise.
clean_up() { rm -rf "$SHIPPED" "$TARGET_DIR/debug" "$work"; }

# Puts the objects of a build into the package.
ship_objects() {
    built=$(cargo build --locked --package bpfcost-uprobe --message-format json-render-diagnostics |
        jq -r 'select(.reason == "build-script-executed" and (.package_id | contains("#bpfcost-uprobe@"))).out_dir')
    mkdir "$SHIPPED"
    cp "$built"/*.o "$SHIPPED"
}

# Makes a folder of all programs in PATH but clang. Of several with a name, the first is taken.
link_programs() {
    local folders
    IFS=: read -ra folders <<<"$PATH"
    mkdir "$work/bin"
    find -H "${folders[@]}" -maxdepth 1 ! -type d ! -name '*clang*' -exec ln -st "$work/bin" {} + 2>/dev/null || true
}

# Checks what lies in a package, and says how large it is.
check() {
    local name=$1-$version package=$TARGET_DIR/package/$1-$version.crate files file
    files=$(tar -tzf "$package")
    for file in LICENSE-APACHE LICENSE-MIT README.md src/lib.rs; do
        grep -qx "$name/$file" <<<"$files" || die "$1 has no $file"
    done
    if [ "$1" = bpfcost-uprobe ]; then
        for file in "$built"/*.o; do
            tar -xzOf "$package" "$name/objects/${file##*/}" | cmp - "$file" || die "$1 has another ${file##*/}"
        done
    fi
    printf '  %6d kB  %3d files  %s\n' $(($(stat -c %s "$package") / 1000)) "$(wc -l <<<"$files")" "$package" >&2
}

[ $# -eq 0 ] || [ "$1" = publish ] || { echo "usage: scripts/package.sh [publish ARGUMENTS]" >&2 && exit 2; }
# Cargo would count the objects as changes, and is called with --allow-dirty.
[ -z "$(git status --porcelain)" ] || die "not everything is committed" "Make packages from a commit."
work=$(mktemp -d)
trap clean_up EXIT
trap 'exit 130' INT TERM
rm -rf "$SHIPPED"

read -r version crates < <(cargo metadata --no-deps --format-version 1 |
    jq -r '[.packages[] | select(.publish == null)] | "\(.[0].version) \(map(.name) | join(" "))"')
read -ra selected <<<"--package ${crates// / --package }"
ship_objects
link_programs
cargo fetch --locked
rm -rf "$TARGET_DIR" "$UNPACKED"/-*/bpfcost-*
env -u CLANG PATH="$work/bin" cargo package --locked --offline --allow-dirty \
    --target-dir "$TARGET_DIR" "${selected[@]}"
for crate in $crates; do check "$crate"; done
[ $# -eq 0 ] || cargo publish --locked --allow-dirty --no-verify "${selected[@]}" "${@:2}"
