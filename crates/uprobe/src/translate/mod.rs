//! BPF instructions as machine code of x86-64.
