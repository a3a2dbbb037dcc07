#!/usr/bin/env bash
# Writes LICENSES.txt, the licences of all that is linked into the program, and bpfcost.cdx.json, an SBOM (CycloneDX 1.5) of
# the same. Part of scripts/dist.sh, which sets its variables. Cargo says which crates are linked; C libraries are Debian's,
# but for libbpf, which is in a crate.
set -euo pipefail

: "${new:?}" "${work:?}" "${VERSION:?}" "${BPFCOST_COMMIT:?}" "${SOURCE_DATE_EPOCH:?}" "${TARGET:?}"

die() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

# Name, Debian package, Debian source, licence. The texts are in Debian's packages.
c_libraries() {
    cat <<'END'
glibc    libc6-dev      glibc     LGPL-2.1-or-later
libelf   libelf-dev     elfutils  GPL-2.0-or-later OR LGPL-3.0-or-later
zlib     zlib1g-dev     zlib      Zlib
END
    # Start files and the unwinder, of whichever gcc links here.
    printf 'libgcc libgcc-%s-dev gcc-%s GPL-3.0-or-later WITH GCC-exception-3.1\n' "$gcc" "$gcc"
}

# The crates that are linked, as `name version`, sorted. Those of macros and build scripts are not.
linked_crates() {
    cargo tree --offline --locked --package bpfcost --features bpfcost/static --target "$TARGET" \
        --edges normal,no-proc-macro --prefix none --format '{p}' |
        awk '{ sub(/^v/, "", $2); print $1, $2 }' | sort -u
}

# One line a crate, as JSON: what Cargo knows of it, and who depends on whom.
write_crates() {
    cargo metadata --offline --locked --format-version 1 --filter-platform "$TARGET" >"$work/metadata.json"
    linked_crates | jq -R -s 'split("\n") | map(select(. != ""))' >"$work/linked.json"
    jq --slurpfile linked "$work/linked.json" '
        ($linked[0] | map({ (.): true }) | add) as $is
        | (.packages | map(select($is["\(.name) \(.version)"]) | { (.id): . }) | add) as $by_id
        | (.resolve.nodes | map({ (.id): . }) | add) as $nodes
        | $by_id | to_entries | map({
            name: .value.name,
            version: .value.version,
            own: (.value.source == null),
            license: ((.value.license // "") | gsub(" */ *"; " OR ")),
            license_file: .value.license_file,
            folder: (.value.manifest_path | rtrimstr("/Cargo.toml")),
            description: .value.description,
            uses: [$nodes[.key].deps[] | select(any(.dep_kinds[]; .kind == null)) | .pkg
                | select($by_id[.]) | $by_id[.] | "\(.name) \(.version)"] | unique
        }) | sort_by(.name, .version)' "$work/metadata.json" >"$work/crates.json"
    [ "$(jq length "$work/crates.json")" = "$(jq length "$work/linked.json")" ] ||
        die "cargo tree and cargo metadata disagree on the linked crates"
}

# The C libraries, as JSON.
write_libraries() {
    local name package source licence version
    {
        libbpf=$(jq -r '.[] | select(.name == "libbpf-sys") | .version | sub(".*\\+v"; "")' "$work/crates.json")
        jq -n --arg version "$libbpf" '{ name: "libbpf", version: $version, license: "LGPL-2.1-only OR BSD-2-Clause",
            purl: "pkg:github/libbpf/libbpf@v\($version)" }'
        while read -r name package source licence; do
            version=$(dpkg-query -W -f '${Version}' "$package")
            jq -n --arg name "$name" --arg source "$source" --arg version "$version" --arg licence "$licence" \
                '{ name: $name, version: $version, license: $licence,
                   purl: "pkg:deb/debian/\($source)@\($version | @uri)?arch=source" }'
        done < <(c_libraries)
        rustc --version | awk '{ print $2 }' | jq -R '{ name: "rust-std", version: ., license: "MIT OR Apache-2.0",
            purl: "pkg:generic/rust-std@\(.)" }'
    } | jq -s . >"$work/libraries.json"
}

write_sbom() {
    local serial
    # A UUID of the form of version 8, whose digits anyone may choose.
    serial=$(printf 'bpfcost %s %s' "$VERSION" "$BPFCOST_COMMIT" | sha256sum |
        sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/urn:uuid:\1-\2-8\3-8\4-\5/')
    jq -n --arg serial "$serial" --arg version "$VERSION" --arg commit "$BPFCOST_COMMIT" \
        --arg sha256 "$(sha256sum "$new/bpfcost" | cut -d' ' -f1)" --argjson epoch "$SOURCE_DATE_EPOCH" \
        --slurpfile crates "$work/crates.json" --slurpfile libraries "$work/libraries.json" '
        def ref: if .own then "\(.name)@\(.version)" else "pkg:cargo/\(.name)@\(.version)" end;
        ($crates[0] | map({ ("\(.name) \(.version)"): ref }) | add) as $refs
        | {
            bomFormat: "CycloneDX",
            specVersion: "1.5",
            serialNumber: $serial,
            version: 1,
            metadata: {
                timestamp: ($epoch | todate),
                component: {
                    type: "application",
                    "bom-ref": "bpfcost@\($version)",
                    name: "bpfcost",
                    version: $version,
                    hashes: [{ alg: "SHA-256", content: $sha256 }],
                    licenses: [{ expression: "MIT OR Apache-2.0" }],
                    properties: [{ name: "commit", value: $commit }]
                }
            },
            components: (
                ($crates[0] | map(select(.name != "bpfcost") | {
                    type: "library", "bom-ref": ref, name, version, scope: "required"
                } + if .license == "" then {} else { licenses: [{ expression: .license }] } end
                  + if .own then {} else { purl: ref } end))
                + ($libraries[0] | map({
                    type: "library", "bom-ref": .purl, name, version, scope: "required",
                    licenses: [{ expression: .license }], purl
                }))
            ),
            dependencies: (
                ($crates[0] | map({
                    ref: ref,
                    dependsOn: ([.uses[] | $refs[.]]
                        + if .name == "libbpf-sys" then
                            [$libraries[0][] | select(.name | test("libbpf|libelf|zlib")) | .purl]
                          elif .name == "bpfcost" then
                            [$libraries[0][] | select(.name | test("glibc|libgcc|rust-std")) | .purl]
                          else [] end)
                }))
                + ($libraries[0] | map({ ref: .purl }))
            )
        }' >"$new/bpfcost.cdx.json"
}

# All licences that lie in a folder, by path.
texts_in() {
    find "$1" -maxdepth 1 -type f -printf '%f\n' | grep -iE '^(licen[cs]es?|copying|copyright|notice|unlicense)([-._].*)?$' |
        grep -viE '\.(rs|toml|json)$' | sort | sed "s|^|$1/|" || true
}

# Each text once, with all that it is of: most crates have the same two.
write_texts() {
    local name version folder file text hash
    mkdir -p "$work/texts"
    while IFS=$'\t' read -r name version folder file; do
        # Crates of this workspace have the licence of the whole.
        case $folder in "$PWD"/*) folder=$PWD ;; esac
        {
            texts_in "$folder"
            [ -z "$file" ] || [ ! -f "$folder/$file" ] || printf '%s\n' "$folder/$file"
            [ "$name" != libbpf-sys ] || texts_in "$folder/libbpf"
        } | sort -u >"$work/files"
        if [ ! -s "$work/files" ]; then
            printf '%s %s\n' "$name" "$version" >>"$work/without"
        fi
        while read -r text; do
            # Line ends and spaces at the ends of lines make no other licence.
            sed 's/[[:space:]]*$//' "$text" >"$work/text"
            hash=$(sha256sum <"$work/text" | cut -d' ' -f1)
            [ -e "$work/texts/$hash" ] || mv "$work/text" "$work/texts/$hash"
            printf '%s %s (%s)\n' "$name" "$version" "$(basename "$text")" >>"$work/texts/$hash.of"
        done <"$work/files"
    done < <(jq -r '.[] | [.name, .version, .folder, .license_file // ""] | @tsv' "$work/crates.json")
    while read -r name folder _; do
        text=/usr/share/doc/$folder/copyright
        [ -f "$text" ] || die "$folder has no copyright file"
        hash=$(sha256sum <"$text" | cut -d' ' -f1)
        cp -L "$text" "$work/texts/$hash"
        printf '%s (copyright file of Debian'\''s package %s)\n' "$name" "$folder" >>"$work/texts/$hash.of"
    done < <(c_libraries)
    # What these copyright files refer to.
    for name in GPL-2 GPL-3 LGPL-2.1 LGPL-3; do
        text=/usr/share/common-licenses/$name
        hash=$(sha256sum <"$text" | cut -d' ' -f1)
        cp -L "$text" "$work/texts/$hash"
        printf '%s (text to which copyright files refer)\n' "$name" >>"$work/texts/$hash.of"
    done
}

rule() { printf '%s\n' '--------------------------------------------------------------------------------'; }

write_licences() {
    local hash
    cat <<END
bpfcost $VERSION is MIT OR Apache-2.0; its BPF programs are GPL-2.0-only OR BSD-2-Clause. The program for x86-64 is linked
statically: it contains what this list names. The texts follow, each once, with the names of what it is of.

glibc and libelf are under the (L)GPL: whoever changes them may link the program again with
the changed library. The whole source of bpfcost is public, and scripts/dist.sh makes this program from it. Their sources
are Debian's, in the versions below (apt-get source).

END
    jq -r '.[] | "\(.name) \(.version)\t\(.license)"' "$work/libraries.json" "$work/crates.json" |
        awk -F'\t' '{ printf "  %-40s %s\n", $1, $2 }'
    if [ -s "$work/without" ]; then
        printf '\nThese packages have no text of their own; that of the licence named above is below, with other crates:\n\n'
        sed 's/^/  /' "$work/without"
    fi
    # In the order of their first owner, so that a small change stays one.
    for hash in "$work"/texts/*.of; do
        printf '%s\t%s\n' "$(head -n 1 "$hash")" "$(basename "$hash" .of)"
    done | sort | cut -f2 | while read -r hash; do
        printf '\n'
        rule
        sort -u "$work/texts/$hash.of"
        rule
        printf '\n'
        cat "$work/texts/$hash"
    done
}

gcc=$(gcc -dumpversion)
write_crates
write_libraries
write_sbom
write_texts
write_licences >"$new/LICENSES.txt"
