//! BPF programs that time themselves.
