//! The CPU of this thread: the hint that pools need.

/// The CPU that this thread runs on now, or 0 where unknown. Some 2 ns: the C library reads what the kernel
/// keeps for the thread (`rseq`), and asks the kernel only where that does not exist.
///
/// The answer may be out of date at once, which costs a pool time and nothing else.
#[inline]
pub fn current() -> usize {
    nix::sched::sched_getcpu().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_one_of_the_machine() {
        let all =
            std::fs::read_to_string("/sys/devices/system/cpu/possible").expect("Linux has it");
        let last = all.trim().rsplit(['-', ',']).next().expect("a range");
        assert!(super::current() <= last.parse().expect("a number"));
    }
}
