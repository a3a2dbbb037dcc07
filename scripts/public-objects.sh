#!/usr/bin/env bash
# Collects BPF objects that others have published, runs `bpfcost program` on each, and prints a table: measured, or
# refused with the reason. Objects come from Debian packages (libxdp1, the kernel's selftests and samples of
# linux-source-6.1), from Go modules, and from folders that are named. Nothing of them is kept in this repository.
#
# Needs root, clang-19, bpftool, go, and the network. Objects are loaded and run in the kernel: use a machine for tests.
set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/public-objects.sh WORK [FOLDER...]

  WORK    a folder for downloads and objects; what is there already is not fetched again
  FOLDER  more objects (*.o, *.elf) or sources (*.c) of your own

  BPFCOST=PATH  the binary [default: target/release/bpfcost]
  MOST=N        the most objects, evenly chosen [default: 170]
END
}

[ $# -ge 1 ] || { usage >&2; exit 2; }
case $1 in -h | --help) usage; exit ;; esac
mkdir -p "$1"
work=$(realpath "$1")
shift
here=$(realpath "$(dirname "$0")/..")
bpfcost=${BPFCOST:-$here/target/release/bpfcost}
objects=$work/objects
mkdir -p "$objects"

# Sections of programs that bpfcost can run in a loop; what only a newer or an older kernel has stays in.
loopable='SEC\("\??(xdp|tc|classifier|cls|action|socket|cgroup.skb|raw_tp|raw_tracepoint|syscall)|__section_entry'

# debian PACKAGE: unpacks a package of Debian.
debian() {
    [ -d "$work/$1" ] && return
    (cd "$work" && apt-get -qq download "$1" && dpkg -x "$1"_*.deb "$1")
}

# module PATH@VERSION: the folder of a Go module; nothing if it can't be had.
module() {
    GOMODCACHE=$work/go GOFLAGS=-modcacherw go mod download -json "$1" 2>/dev/null |
        sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p' || true
}

# compile ORIGIN FOLDER WORD...: compiles the sources of a folder that have loopable programs. What does not compile is left.
compile() {
    local origin=$1 folder=$2 source
    shift 2
    grep -rlE --include='*.c' "$loopable" "$folder" 2>/dev/null | sort | while read -r source; do
        local object
        object=$objects/$origin-$(basename "$(dirname "$source")")-$(basename "$source" .c).o
        [ -e "$object" ] || timeout 30 clang-19 -O2 -g -target bpf -mcpu=v3 -D__TARGET_ARCH_x86 -D__x86_64__ -w \
            -I"$work" -I"$work/libbpf-dev/usr/include" -I/usr/include/x86_64-linux-gnu "$@" -c "$source" -o "$object" 2>/dev/null || true
    done
}

# take ORIGIN FOLDER: copies compiled objects.
take() {
    local origin=$1 object
    find "$2" -type f \( -name '*.o' -o -name '*.elf' \) | sort | while read -r object; do
        cp "$object" "$objects/$origin-$(basename "$(dirname "$object")")-$(basename "${object%.*}").o"
    done
}

collect() {
    [ -e "$work/vmlinux.h" ] || bpftool btf dump file /sys/kernel/btf/vmlinux format c >"$work/vmlinux.h"
    debian libbpf-dev
    debian libxdp1
    take libxdp1 "$work/libxdp1"
    debian linux-source-6.1
    local linux=$work/linux
    [ -d "$linux" ] || {
        mkdir -p "$linux"
        local tree=linux-source-6.1
        tar -xf "$work/$tree/usr/src/$tree.tar.xz" -C "$linux" --strip-components=1 \
            $tree/tools/testing/selftests/bpf $tree/samples/bpf $tree/tools/lib/bpf
    }
    compile selftests "$linux/tools/testing/selftests/bpf/progs" -I"$linux/tools/testing/selftests/bpf" \
        -I"$linux/tools/testing/selftests/bpf/progs"
    compile samples "$linux/samples/bpf" -I"$linux/tools/testing/selftests/bpf"
    local name folder
    for name in github.com/cilium/ebpf@v0.19.0 github.com/aquasecurity/libbpfgo@v0.5.1-libbpf-1.2; do
        folder=$(module "$name")
        [ -n "$folder" ] || { echo "not to be had: $name" >&2; continue; }
        take "$(basename "${name%@*}")" "$folder"
        compile "$(basename "${name%@*}")" "$folder"
    done
    folder=$(module github.com/cilium/cilium@v1.18.0)
    [ -z "$folder" ] || compile cilium "$folder/bpf" -std=gnu99 -nostdinc -D__NR_CPUS__=2 -DENABLE_IPV4 -DENABLE_IPV6 \
        -I"$folder/bpf" -I"$folder/bpf/include"
    for folder; do
        take "$(basename "$folder")" "$folder"
        compile "$(basename "$folder")" "$folder" -I"$folder" -I"$folder/common" -I"$folder/headers"
    done
}

# reason FILE: the headline of what bpfcost said, in one line.
reason() {
    grep -m 1 -E '^error|^  INVALID|INVALID' "$1" | sed "s|$objects/||g; s/^error: //; s/|/,/g" | cut -c 1-150
}

# judge OBJECT: a line of the table. Nothing is measured but the first program that a dry run names.
judge() {
    local object=$1 code=0 program said=$work/said
    timeout 60 "$bpfcost" program "$object" --dry-run >"$said" 2>&1 || code=$?
    if [ $code -ne 0 ]; then
        echo "refused|$(basename "$object")|$code|$(reason "$said")"
        return
    fi
    program=$(sed -nE 's/^ *([A-Za-z0-9_]+)\/(udp|zeros).*/\1/p' "$said" | grep -v '^floor$' | head -1)
    code=0
    timeout 120 "$bpfcost" program "$object" --program "$program" --quick >"$said" 2>&1 || code=$?
    case $code in
        0) echo "measured|$(basename "$object")|$program|$(sed -nE "s/^ *$program\/[a-z]+ +([0-9.,]+) .*/\1 ns/p" "$said" | head -1)" ;;
        *) echo "stopped|$(basename "$object")|$code|$program: $(reason "$said")" ;;
    esac
}

collect "$@" >&2
mapfile -t all < <(find "$objects" -name '*.o' | sort)
most=${MOST:-170}
step=$(((${#all[@]} + most - 1) / most))
[ "$step" -ge 1 ] || { echo "no object could be collected" >&2; exit 4; }
table=$work/table
: >"$table"
for ((at = 0; at < ${#all[@]}; at += step)); do
    judge "${all[at]}" | tee -a "$table"
done
echo
for outcome in measured stopped refused; do
    echo "$outcome: $(grep -c "^$outcome|" "$table" || true)"
done
# A dry run that ends well has named a program that can be looped.
loopable_ones=$(grep -cE '^(measured|stopped)\|' "$table" || true)
echo "of $loopable_ones objects with a program that can be run in a loop, $(grep -c '^measured|' "$table" || true) were measured"
