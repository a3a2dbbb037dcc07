#!/usr/bin/env bash
# Packs the program, its manual and its completions: .deb, .rpm, an archive of the two latter, and an OCI image. Part of
# scripts/dist.sh, which sets its variables. No package depends on another: the program is static.
set -euo pipefail

: "${new:?}" "${work:?}" "${VERSION:?}" "${SOURCE_DATE_EPOCH:?}" "${BPFCOST_COMMIT:?}"

readonly SUMMARY='measures what eBPF programs and probes cost'
readonly DESCRIPTION='bpfcost times BPF programs in the kernel, and probes on running servers. It checks
every trial while it is timed, and reports a number, a 95 % interval and a verdict.'

# Sets all times below a folder to that of the commit.
set_times() { find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +; }

# archive FILE FOLDER [NAME]...: writes a tar file that is the same everywhere.
archive() {
    local file=$1 folder=$2
    shift 2
    tar --create --file "$file" --directory "$folder" --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
        --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --format=ustar "${@:-.}"
}

# stage FOLDER ZSH FISH: lays out what a package installs, with the folders of completions of two shells.
stage() {
    local root=$1 zsh=$2 fish=$3 doc=$1/usr/share/doc/bpfcost
    install -D -m 755 "$new/bpfcost" "$root/usr/bin/bpfcost"
    install -d "$root/usr/share/man/man1" "$doc"
    install -m 644 "$work"/manual/man/*.1 "$root/usr/share/man/man1/"
    gzip -9 --no-name "$root"/usr/share/man/man1/*.1
    install -D -m 644 "$work/manual/bash/bpfcost.bash" "$root/usr/share/bash-completion/completions/bpfcost"
    install -D -m 644 "$work/manual/zsh/_bpfcost" "$root/usr/share/$zsh/_bpfcost"
    install -D -m 644 "$work/manual/fish/bpfcost.fish" "$root/usr/share/$fish/bpfcost.fish"
    copyright >"$doc/copyright"
    gzip -9 --no-name --stdout "$new/LICENSES.txt" >"$doc/LICENSES.txt.gz"
    gzip -9 --no-name --stdout CHANGELOG.md >"$doc/changelog.gz"
}

# Names all that is linked, in Debian's form. The texts are beside it.
copyright() {
    cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: bpfcost
Comment: The program is linked statically. It contains the libraries and crates below; the texts of their licences are in
 LICENSES.txt.gz beside this file. Commit: $BPFCOST_COMMIT.

Files: *
Copyright: the bpfcost authors
License: MIT or Apache-2.0

Files: crates/*/bpf/*
Copyright: the bpfcost authors
License: GPL-2.0-only or BSD-2-Clause
Comment: BPF programs, compiled into the program.

END
    jq -r '.[] | "Files: \(.name)\nCopyright: the authors of \(.name)\nLicense: \(.license | gsub(" OR "; " or "))\nComment: Version \(.version), linked into the program.\n"' \
        "$work/libraries.json"
    jq -r '.[] | select(.own | not) | "Files: \(.name)\nCopyright: the authors of the crate \(.name)\nLicense: \(.license | gsub(" OR "; " or ") | gsub(" AND "; " and "))\nComment: Version \(.version), linked into the program.\n"' \
        "$work/crates.json"
}

write_deb() {
    local root=$work/deb
    stage "$root" zsh/vendor-completions fish/vendor_completions.d
    install -d "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<END
Package: bpfcost
Version: $VERSION
Architecture: amd64
Maintainer: the bpfcost maintainers
Section: utils
Priority: optional
Recommends: qemu-system-x86
Installed-Size: $(du -k -s --apparent-size "$root/usr" | cut -f1)
Description: $SUMMARY
 ${DESCRIPTION//$'\n'/$'\n' }
END
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    set_times "$root"
    # As many threads as CPUs would make blocks of other sizes.
    DPKG_DEB_THREADS_MAX=1 dpkg-deb --root-owner-group -Zxz --build "$root" "$new/bpfcost_${VERSION}_amd64.deb" >/dev/null
}

write_rpm() {
    local root=$work/rpm
    stage "$root/staged" zsh/site-functions fish/vendor_completions.d
    set_times "$root/staged"
    # A version with a hyphen is none for rpm; a tilde sorts before the release, as it should.
    cat >"$root/bpfcost.spec" <<END
Name: bpfcost
Version: ${VERSION//-/\~}
Release: 1
Summary: ${SUMMARY^}
License: (MIT OR Apache-2.0) AND (GPL-2.0-only OR BSD-2-Clause) AND LGPL-2.1-or-later AND (GPL-2.0-or-later OR LGPL-3.0-or-later) AND Zlib AND CDDL-1.0
AutoReqProv: no
Recommends: qemu-system-x86

%description
$DESCRIPTION

%install
cp -a "$root/staged/." "%{buildroot}/"

%files
%attr(755, root, root) /usr/bin/bpfcost
%attr(644, root, root) /usr/share/man/man1/*.1.gz
%attr(644, root, root) /usr/share/bash-completion/completions/bpfcost
%attr(644, root, root) /usr/share/zsh/site-functions/_bpfcost
%attr(644, root, root) /usr/share/fish/vendor_completions.d/bpfcost.fish
%dir %attr(755, root, root) /usr/share/doc/bpfcost
%attr(644, root, root) /usr/share/doc/bpfcost/*
END
    # Without what it would do to programs by itself: strip, compress, rewrite.
    rpmbuild -bb --quiet --target x86_64 --define "_topdir $root/top" --define "_rpmdir $root/out" \
        --define "_dbpath $root/db" --define '__os_install_post %{nil}' --define 'debug_package %{nil}' \
        --define '_build_id_links none' --define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' \
        --define 'clamp_mtime_to_source_date_epoch 1' --define '_binary_payload w6.xzdio' \
        --define 'source_date_epoch_from_changelog 0' "$root/bpfcost.spec" >"$root/log" 2>&1 ||
        { cat "$root/log" >&2 && exit 1; }
    cp "$root/out/x86_64/"*.rpm "$new/bpfcost-$VERSION-1.x86_64.rpm"
}

# What install.sh does not: for people who want manual and completions without a package.
write_manual() {
    local name=bpfcost-$VERSION-manual
    mkdir -p "$work/$name"
    cp -r "$work"/manual/* "$work/$name/"
    archive "$work/$name.tar" "$work" "$name"
    gzip -9 --no-name --stdout "$work/$name.tar" >"$new/$name.tar.gz"
}

# blob FILE: moves it to the blobs of the image, and prints the fields of its descriptor.
blob() {
    local digest size
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    size=$(stat -c %s "$1")
    mv "$1" "$work/oci/blobs/sha256/$digest"
    jq -n --arg digest "sha256:$digest" --argjson size "$size" '{ digest: $digest, size: $size }'
}

# An image of the program and its licences alone, as a tar file of an OCI layout (image specification 1.0).
write_image() {
    local root=$work/image diff layer config manifest created
    local media=application/vnd.oci.image
    mkdir -p "$root" "$work/oci/blobs/sha256"
    install -m 755 "$new/bpfcost" "$root/bpfcost"
    install -m 644 "$new/LICENSES.txt" "$root/LICENSES.txt"
    # Temporary files of a run.
    mkdir -m 1777 "$root/tmp"
    tar --create --file "$work/layer.tar" --directory "$root" --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
        --owner=0 --group=0 --numeric-owner --format=ustar LICENSES.txt bpfcost tmp
    diff=sha256:$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
    gzip -9 --no-name "$work/layer.tar"
    layer=$(blob "$work/layer.tar.gz")
    created=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    jq -n --arg created "$created" --arg diff "$diff" '{
        created: $created, architecture: "amd64", os: "linux",
        config: { Entrypoint: ["/bpfcost"] },
        rootfs: { type: "layers", diff_ids: [$diff] },
        history: [{ created: $created, created_by: "scripts/dist.sh" }]
    }' >"$work/config.json"
    config=$(blob "$work/config.json")
    jq -n --argjson config "$config" --argjson layer "$layer" --arg media "$media" \
        --arg version "$VERSION" --arg commit "$BPFCOST_COMMIT" '{
        schemaVersion: 2, mediaType: "\($media).manifest.v1+json",
        config: ({ mediaType: "\($media).config.v1+json" } + $config),
        layers: [{ mediaType: "\($media).layer.v1.tar+gzip" } + $layer],
        annotations: {
            "org.opencontainers.image.title": "bpfcost",
            "org.opencontainers.image.version": $version,
            "org.opencontainers.image.revision": $commit
        }
    }' >"$work/manifest.json"
    manifest=$(blob "$work/manifest.json")
    jq -n --argjson manifest "$manifest" --arg media "$media" --arg version "$VERSION" '{
        schemaVersion: 2, mediaType: "\($media).index.v1+json",
        manifests: [{ mediaType: "\($media).manifest.v1+json" } + $manifest + {
            platform: { architecture: "amd64", os: "linux" },
            annotations: { "org.opencontainers.image.ref.name": $version }
        }]
    }' >"$work/oci/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' >"$work/oci/oci-layout"
    archive "$new/bpfcost-$VERSION-oci.tar" "$work/oci" oci-layout index.json blobs
}

write_deb
write_rpm
write_manual
write_image
