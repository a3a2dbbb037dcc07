#!/bin/sh
# How --abort-above judges on this machine: RUNS runs of a probe that does nothing, beside a service whose load comes in bursts
# and one that always works, with and without --ops; and of one that doubles the cost of an operation. Runs whose limit is
# refused, because the service's own noise exceeds it, are counted apart: up to three for each of the others. As root.
#   scripts/abort-above.sh [RUNS [LIMIT]]
set -eu

runs=${1:-40}
limit=${2:-20%}
bpfcost=${BPFCOST:-target/release/bpfcost}
dir=$(mktemp -d)
service=
trap 'kill "$service" 2>/dev/null; rm -rf "$dir"' EXIT

# serve BURSTS: an operation counts itself in a file, after some work. Bursts and pauses last 20 to 300 ms.
serve() {
    [ -z "$service" ] || kill "$service"
    perl -MTime::HiRes=time,sleep -e '
        my ($path, $bursts) = @ARGV;
        open my $file, "+>", $path or die;
        my ($n, $until) = (0, 0);
        for (;;) {
            if ($bursts && time > $until) { sleep 0.02 + rand 0.28; $until = time + 0.02 + rand 0.28 }
            my $sum = 0;
            $sum += $_ for 1 .. 200;
            sysseek $file, 0, 0;
            syswrite $file, sprintf "%012d\n", ++$n;
        }' "$dir/ops" "$1" &
    service=$!
    sleep 1
}
ops="cat $dir/ops"
serve 0

# CPU time of an operation, in nanoseconds.
account() {
    awk '{ printf "%.0f ", $1 }' "/proc/$service/schedstat"
    $ops
}
before=$(account)
sleep 5
after=$(account)
double=$(echo "$before $after" | awk '{ printf "%.0f", ($3 - $1) / ($4 - $2) }')
echo "an operation takes $double ns; limit $limit, $runs runs each"

# series NAME PROBE [OPTION...]: counts how the runs end.
series() {
    name=$1 probe=$2
    shift 2
    aborted=0 refused=0 soon=0 went=0 other=0
    while [ $((aborted + went + other)) -lt "$runs" ] && [ "$refused" -lt $((3 * runs)) ]; do
        "$bpfcost" overhead "$probe" --watch "$service" --abort-above "$limit" --quick --out "$dir/record.json" "$@" \
            >"$dir/out" 2>"$dir/err" || true
        rm -f "$dir"/record.json*
        if grep -q "^The probe was detached after" "$dir/out"; then
            aborted=$((aborted + 1))
            # Twice that long, in two tries.
            awk '/^The probe was detached after/ { exit !($6 <= 1) }' "$dir/out" && soon=$((soon + 1))
        elif grep -q "is within the noise" "$dir/err"; then
            refused=$((refused + 1))
        elif grep -q "^record: " "$dir/err"; then
            went=$((went + 1))
        else
            other=$((other + 1))
            cat "$dir/err"
        fi
        [ -z "${VERBOSE:-}" ] || head -n 1 "$dir/out" "$dir/err"
    done
    echo "$name: $went ran to the end, $refused refused, $aborted aborted ($soon within 2 s), $other others"
}

doubles="builtin:busy:syscalls:sys_enter_write:$double"
series "always at work, doubled, per operation" "$doubles" --ops "$ops"
series "always at work, nothing, per operation" builtin:nothing --ops "$ops"
serve 1
series "bursts, doubled, per operation" "$doubles" --ops "$ops"
series "bursts, nothing, per operation" builtin:nothing --ops "$ops"
series "bursts, nothing, per second" builtin:nothing
