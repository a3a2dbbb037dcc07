#!/usr/bin/env bash
# Takes the BPF objects out of the tools of Debian's package libbpf-tools, measures the programs of each at their hooks, and
# writes a table: a line for each program, with its cost or the reason. docs/evidence/hooks.md has what came of it. Nothing
# of the objects is kept in this repository.
#
# Needs a kernel for guests (bpfcost kernel add) and the network. No root; nothing is loaded into this machine's kernel.
set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/hook-objects.sh WORK KERNEL [FOLDER]

  WORK    a folder for the package, its objects and the table; what is there already is not made again
  KERNEL  of the guest, by its name or a part of it: 6.12
  FOLDER  objects (*.bpf.o) of your own, instead of the package's

  BPFCOST=PATH  the binary [default: target/release/bpfcost]
END
}

case ${1:-} in -h | --help) usage; exit ;; esac
[ $# -ge 2 ] || { usage >&2; exit 2; }
mkdir -p "$1"
work=$(realpath "$1")
kernel=$2
here=$(realpath "$(dirname "$0")/..")
bpfcost=${BPFCOST:-$here/target/release/bpfcost}
objects=${3:-$work/objects}

# number FILE OFFSET BYTES
number() {
    od -An -j "$2" -N "$3" -t "u$3" "$1" | tr -d ' '
}

# cut_objects FILE FOLDER: the BPF objects that a tool has inside (ELF, relocatable, machine 247), up to their section headers,
# which are last.
cut_objects() {
    local file=$1 folder=$2 at size found=0
    while IFS=: read -r at _; do
        if [ "$(number "$file" $((at + 16)) 2)" != 1 ] || [ "$(number "$file" $((at + 18)) 2)" != 247 ]; then
            continue
        fi
        size=$(($(number "$file" $((at + 40)) 8) + $(number "$file" $((at + 58)) 2) * $(number "$file" $((at + 60)) 2)))
        tail -c "+$((at + 1))" "$file" | head -c "$size" >"$folder/$(basename "$file")${found/#0/}.bpf.o" || true
        found=$((found + 1))
    done < <(LC_ALL=C grep -abo $'\x7fELF\x02\x01\x01' "$file")
}

if [ ! -d "$objects" ]; then
    (cd "$work" && apt-get -qq download libbpf-tools && dpkg -x libbpf-tools_*.deb package)
    mkdir -p "$objects.new"
    find "$work/package/usr/sbin" -type f | sort | while read -r tool; do
        cut_objects "$tool" "$objects.new"
    done
    mv "$objects.new" "$objects"
fi
table=$work/table-$kernel.csv
: >"$table"
for object in "$objects"/*.bpf.o; do
    name=$(basename "$object" .bpf.o)
    records=$(mktemp -d)
    code=0
    "$bpfcost" program "$object" --on "exact:$kernel" --quick --out "$records" --format csv >"$work/said" 2>"$work/why" || code=$?
    rm -rf "$records"
    # The first line names the columns.
    sed -n "2,\$s|^|$name,|p" "$work/said" >>"$table"
    [ -s "$work/said" ] || echo "$name,$(grep -m 1 '^error' "$work/why")" >>"$table"
    echo "$name: exit code $code"
done
echo "$(grep -c '^[^,]*,hook,.*,case,ok,' "$table" || true) programs measured at their hooks; $table has the others, with reasons"
