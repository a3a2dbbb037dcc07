#!/usr/bin/env bash
# Runs a test program under the machine state that tests are written for, and puts back what it changed.
# `make test` has cargo start every test program by it. What it can't set, because the kernel lacks it or
# this user may not, stays as it is: the test that needs it says so.
set -uo pipefail

[ $# -ge 1 ] || { echo "usage: scripts/conditions.sh PROGRAM [ARGUMENT]..." >&2 && exit 2; }

# File, value, reason.
settings() {
    cat <<'END'
/proc/sys/kernel/bpf_stats_enabled    0  each run of a program would read the clock twice
/proc/sys/kernel/kptr_restrict        0  functions are named by their addresses
/proc/sys/net/core/bpf_jit_harden     0  programs would be compiled to other, longer code
/proc/sys/debug/kprobes-optimization  1  kprobes become jumps, and a case is about that
/sys/kernel/rcu_expedited             1  whoever detaches a program waits half as long or less
END
}

# The kernel leaves it on once any program that prints was loaded.
readonly PRINTK=events/bpf_trace/bpf_trace_printk/enable

changed=()

# set_to FILE VALUE: notes what was there, if it was something else.
set_to() {
    local before
    before=$(cat "$1" 2>/dev/null) || return 0
    [ "$before" != "$2" ] || return 0
    if echo "$2" 2>/dev/null >"$1"; then changed+=("$1" "$before"); fi
}

put_back() {
    local i
    for ((i = ${#changed[@]} - 2; i >= 0; i -= 2)); do
        echo "${changed[i + 1]}" >"${changed[i]}"
    done
    changed=()
}
trap put_back EXIT

while read -r file value _; do
    set_to "$file" "$value"
done < <(settings)
for tracefs in /sys/kernel/tracing /sys/kernel/debug/tracing; do
    if [ -e "$tracefs/$PRINTK" ]; then
        set_to "$tracefs/$PRINTK" 0
        break
    fi
done

# Most tests in these wait, for servers and for the ends of runs.
case ${1##*/} in
cli-* | overhead-*) [ -z "${RUST_TEST_THREADS-}" ] || export RUST_TEST_THREADS=$((2 * RUST_TEST_THREADS)) ;;
esac

# Ctrl-C is the program's to answer; then what was changed is put back.
trap : INT TERM
"$@"
