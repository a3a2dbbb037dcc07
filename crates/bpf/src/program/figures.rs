//! Costs of a program beside its time: the verifier's work on it, and the memory that it takes.

/// The kernel's figures of a program that it has verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Instructions that the verifier went through, on all paths.
    pub processed: u64,
    /// States that it kept.
    pub states: u64,
    /// Bytes of stack of the program and of each function that it calls.
    pub stack_bytes: Vec<u64>,
    /// Time that verification took, in microseconds.
    pub verified_us: u64,
    /// Bytes of the instructions after verification.
    pub xlated_bytes: u64,
    /// Bytes of machine code; 0 without a JIT.
    pub jited_bytes: u64,
    /// Memory of its maps, in bytes.
    pub map_bytes: u64,
}

impl Figures {
    /// Parses the end of the verifier's log.
    pub(super) fn of_log(log: &str) -> Self {
        let mut figures = Figures::default();
        for line in log.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["verification", "time", number, ..] => figures.verified_us = parsed(number),
                ["stack", "depth", depths, ..] => {
                    figures.stack_bytes = depths.split('+').map(parsed).collect();
                }
                ["processed", number, ..] => {
                    figures.processed = parsed(number);
                    let states = words.iter().position(|word| *word == "total_states");
                    let states = states.and_then(|at| words.get(at + 1));
                    figures.states = states.map_or(0, |number| parsed(number));
                }
                _ => {}
            }
        }
        figures
    }
}

fn parsed(number: &str) -> u64 {
    number.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_end_of_a_log() {
        let log = "verification time 141 usec\nstack depth 56+8\nprocessed 2371 insns (limit 1000000) \
                   max_states_per_insn 2 total_states 12 peak_states 11 mark_read 5\n";
        let figures = Figures::of_log(log);
        assert_eq!((figures.processed, figures.states), (2371, 12));
        assert_eq!(figures.stack_bytes, [56, 8]);
        assert_eq!(figures.verified_us, 141);
        assert_eq!(Figures::of_log("nothing of it"), Figures::default());
    }
}
