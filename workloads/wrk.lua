-- What wrk is run with: prints what was measured as a line of JSON, for crates/workload/src/reading/wrk.rs.
function done(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format(
        '{"requests":%d,"bytes":%d,"duration_us":%d,' ..
        '"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d},' ..
        '"latency_us":{"p10":%d,"p25":%d,"p50":%d,"p75":%d,"p90":%d,"p95":%d,"p99":%d,"p999":%d,"max":%d}}\n',
        summary.requests, summary.bytes, summary.duration,
        errors.connect, errors.read, errors.write, errors.status, errors.timeout,
        latency:percentile(10), latency:percentile(25), latency:percentile(50), latency:percentile(75), latency:percentile(90),
        latency:percentile(95), latency:percentile(99), latency:percentile(99.9), latency.max))
end
