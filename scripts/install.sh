#!/bin/sh
# Installs bpfcost from a release: its address in the web, or a folder. It checks the program's SHA-256 first, and puts the
# program in place in one step, so that nothing half-written is ever there.
set -eu

usage() {
    cat <<'END'
usage: install.sh [--to FOLDER] [--sha256 HEX] URL|FOLDER

  URL|FOLDER    where the files of a release are: bpfcost and SHA256SUMS
  --to FOLDER   install into this folder (default: ~/.local/bin)
  --sha256 HEX  the program's SHA-256, from a source that you trust (default: that in SHA256SUMS, of the same place)
END
}

# die WHAT [WHAT TO DO]...
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '  %s\n' "$line" >&2; done
    exit 1
}

wrong_use() {
    usage >&2
    exit 2
}

# fetch NAME FILE: a file of the release.
fetch() {
    case $from in
    *://*)
        if command -v curl >/dev/null 2>&1; then
            curl --fail --silent --show-error --location --output "$2" "$from/$1" ||
                die "cannot download $from/$1" "Check the address and the network. Nothing was installed."
        elif command -v wget >/dev/null 2>&1; then
            wget -q -O "$2" "$from/$1" ||
                die "cannot download $from/$1" "Check the address and the network. Nothing was installed."
        else
            die "neither curl nor wget is installed" \
                "Install one of them, or download bpfcost and SHA256SUMS by hand: install.sh FOLDER"
        fi
        ;;
    *)
        [ -f "$from/$1" ] || die "there is no file $from/$1" "Name the folder, or the address, of a release."
        cp "$from/$1" "$2" || die "cannot copy $from/$1" "Nothing was installed."
        ;;
    esac
}

to=
wanted=
from=
while [ $# -gt 0 ]; do
    case $1 in
    --to)
        [ $# -ge 2 ] || wrong_use
        to=$2
        shift
        ;;
    --sha256)
        [ $# -ge 2 ] || wrong_use
        wanted=$2
        shift
        ;;
    -h | --help)
        usage
        exit
        ;;
    -*) wrong_use ;;
    *)
        [ -z "$from" ] || wrong_use
        from=${1%/}
        ;;
    esac
    shift
done
[ -n "$from" ] || wrong_use

machine="$(uname -s) $(uname -m)"
[ "$machine" = "Linux x86_64" ] || die "this program is for Linux on x86-64, and this is $machine" \
    "Releases have no program for other machines."
command -v sha256sum >/dev/null 2>&1 || die "sha256sum is not installed" "It is in coreutils and in busybox."
if [ -n "$wanted" ]; then
    wanted=$(printf '%s' "$wanted" | tr A-F a-f)
    case $wanted in
    *[!0-9a-f]*) die "--sha256 is no SHA-256: it has 64 hexadecimal digits" ;;
    esac
    [ ${#wanted} -eq 64 ] || die "--sha256 has ${#wanted} digits, and a SHA-256 has 64"
fi

if [ -z "$to" ]; then
    [ -n "${HOME:-}" ] || die "HOME is not set" "Name a folder: --to FOLDER"
    to=$HOME/.local/bin
fi
mkdir -p "$to" 2>/dev/null || die "cannot make the folder $to" "Name another one: --to FOLDER"
scratch=
program=
clean_up() { rm -rf "${scratch:-}" "${program:-}"; }
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# In the folder itself: a rename within one file system is one step.
program=$(mktemp "$to/.bpfcost.XXXXXX" 2>/dev/null) ||
    die "cannot write to $to" "Name another folder (--to FOLDER), or run this as root."
scratch=$(mktemp -d)

if [ -z "$wanted" ]; then
    fetch SHA256SUMS "$scratch/SHA256SUMS"
    wanted=$(sed -n 's/^\([0-9a-f]\{64\}\) [ *]bpfcost$/\1/p' "$scratch/SHA256SUMS")
    [ ${#wanted} -eq 64 ] || die "SHA256SUMS of $from does not name bpfcost" "Is that the place of a release?"
fi
fetch bpfcost "$program"
have=$(sha256sum "$program" | cut -d' ' -f1)
[ "$have" = "$wanted" ] || die "the SHA-256 of $from/bpfcost is wrong" \
    "expected $wanted" \
    "got      $have, of $(wc -c <"$program" | tr -d ' ') bytes" \
    "The file is truncated, or another one. Download it again. Nothing was installed."
chmod 755 "$program"
says=$("$program" --version 2>&1) || die "the program does not start in $to: $says" \
    "A folder mounted with noexec? Name another one: --to FOLDER"
mv -f "$program" "$to/bpfcost" || die "cannot write $to/bpfcost" "Nothing was installed."
program=

printf '%s\n' "installed $(printf '%s\n' "$says" | head -n 1): $to/bpfcost"
case ":${PATH:-}:" in
*":$to:"*) printf '%s\n' "Start with: bpfcost check" ;;
*)
    printf '%s\n' "Start with: $to/bpfcost check" \
        "$to is not in your PATH. To add it: export PATH=\"$to:\$PATH\""
    ;;
esac
