//! Lines of text that programs write by `bpf_trace_printk` and `bpf_trace_vprintk`: `blob/trace.h`.

use std::fmt;

/// Bytes of the ring of a process. A line without room is dropped, and counted.
pub(super) const RING_BYTES: u32 = 128 << 10;

/// Bytes of a record before the text: the time, process and thread, and the CPU.
const HEAD: usize = 24;
const NANOS: u64 = 1_000_000_000;

/// A line that a program wrote. It is shown as the kernel's `trace_pipe` shows it, without the name of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLine<'a> {
    /// The process that was attached to: itself, or a child of it, wrote the line.
    pub pid: i32,
    /// The thread that wrote it, as its own PID namespace numbers it.
    pub thread: u32,
    /// The CPU.
    pub cpu: u32,
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The text, at most 1,023 bytes: the bytes that the format and `%s` and `%c` wrote.
    pub text: &'a [u8],
}

impl<'a> TraceLine<'a> {
    /// A record of the ring of a process; `None` where it is none.
    pub(super) fn parse(pid: i32, record: &'a [u8]) -> Option<Self> {
        let (head, text) = record.split_at_checked(HEAD)?;
        let word = |index: usize| {
            let bytes = head[8 * index..][..8].try_into().expect("8 bytes");
            u64::from_le_bytes(bytes)
        };
        Some(TraceLine {
            pid,
            thread: word(1) as u32,
            cpu: word(2) as u32,
            time: word(0),
            text,
        })
    }
}

impl fmt::Display for TraceLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.time / NANOS, self.time % NANOS / 1000);
        let text = String::from_utf8_lossy(self.text);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        write!(
            f,
            "{} [{:03}] {seconds}.{micros:06}: bpf_trace_printk: {text}",
            self.thread, self.cpu
        )
    }
}

#[cfg(test)]
mod tests {
    use super::TraceLine;

    #[test]
    fn a_line_is_shown_as_the_kernel_shows_it() {
        let words = [12_000_345_678_u64, 7 << 32 | 8, 1];
        let mut record: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        assert_eq!(TraceLine::parse(7, &record[..20]), None);
        record.extend(b"a\tb\n");
        let line = TraceLine::parse(7, &record).expect("a line");
        assert_eq!(
            line.to_string(),
            "8 [001] 12.000345: bpf_trace_printk: a\tb"
        );
    }
}
