#!/usr/bin/env bash
# Makes the release of the last commit twice, in two folders with names of different lengths, and compares the checksums of
# all files. What is not committed is left out. It takes as long as two builds from nothing: some 20 CPU minutes.
set -euo pipefail

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# Builds in their own folders.
unset CARGO_TARGET_DIR
commit=$(git -C "$root_dir" rev-parse HEAD)
for name in one another-place; do
    git clone --quiet --no-checkout "$root_dir" "$folder/$name"
    git -C "$folder/$name" checkout --quiet --detach "$commit"
    "$folder/$name/scripts/dist.sh"
    cp -r "$folder/$name/dist" "$folder/$name.dist"
    # Not both at a time: each takes gigabytes.
    rm -rf "${folder:?}/$name"
done

if ! diff -u "$folder/one.dist/SHA256SUMS" "$folder/another-place.dist/SHA256SUMS"; then
    echo "error: two builds of commit $commit differ in the files above" >&2
    # For whoever looks for the reason.
    trap - EXIT
    echo "  They are in $folder" >&2
    exit 1
fi
echo "Two builds of commit $commit are the same, byte for byte:"
cat "$folder/one.dist/SHA256SUMS"
