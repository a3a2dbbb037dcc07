//! What does eBPF cost?
fn main() {}
