#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bpfcost::fuzz::run(env!("CARGO_BIN_NAME"), bytes));
