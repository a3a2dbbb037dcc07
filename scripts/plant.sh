#!/usr/bin/env bash
# Runs a command on a machine in the state that other tools leave it in, as root, and puts all of it back:
# sysctls, the tracepoint of bpf_trace_printk, a BPF program of somebody else, and two busy processes a CPU.
set -uo pipefail

[ $# -ge 1 ] || { echo "usage: scripts/plant.sh COMMAND [ARGUMENT]..." >&2 && exit 2; }
[ "$(id -u)" = 0 ] || { echo "error: planting needs root" >&2 && exit 1; }

# Sysctl and the value to plant.
settings() {
    cat <<'END'
kernel/bpf_stats_enabled     1
kernel/kptr_restrict         2
kernel/perf_event_paranoid   4
net/core/bpf_jit_harden      2
debug/kprobes-optimization   0
END
}

readonly PRINTK=events/bpf_trace/bpf_trace_printk/enable

files=() before=() children=()

plant() {
    local was
    was=$(cat "$1" 2>/dev/null) || return 0
    files+=("$1") before+=("$was")
    echo "$2" >"$1" && echo "planted: $1 = $2 (was $was)" >&2
}

# shellcheck disable=SC2317 # by the trap
uproot() {
    local i
    [ ${#children[@]} = 0 ] || kill "${children[@]}" 2>/dev/null
    wait
    for ((i = ${#files[@]} - 1; i >= 0; i--)); do
        echo "${before[i]}" >"${files[i]}"
    done
    [ -z "${mounted:-}" ] || umount /sys/kernel/tracing
}
trap uproot EXIT
trap 'exit 130' INT TERM

mounted=
if [ ! -d /sys/kernel/tracing/events ]; then
    mount -t tracefs tracefs /sys/kernel/tracing && mounted=yes
fi
while read -r name value; do
    plant "/proc/sys/$name" "$value"
done < <(settings)
plant "/sys/kernel/tracing/$PRINTK" 1
if command -v bpftrace >/dev/null; then
    bpftrace -e 'tracepoint:sched:sched_process_exec { @ = count(); }' >/dev/null 2>&1 &
    children+=($!)
fi
for ((i = 0; i < 2 * $(nproc); i++)); do
    sh -c 'while :; do :; done' &
    children+=($!)
done

# Who asked for root by sudo builds nothing as root.
if [ -n "${SUDO_USER:-}" ]; then
    sudo -E -u "$SUDO_USER" "$@"
else
    "$@"
fi
code=$?
# A test must leave it as it was, which is as planted.
for ((i = 0; i < ${#files[@]}; i++)); do
    now=$(cat "${files[i]}")
    case "${files[i]}" in
    *"$PRINTK") planted=1 ;;
    *) planted=$(settings | awk -v name="${files[i]#/proc/sys/}" '$1 == name { print $2 }') ;;
    esac
    if [ "$now" != "$planted" ]; then
        echo "error: ${files[i]} is $now and was $planted before the tests" >&2
        code=1
    fi
done
exit "$code"
