//! A function in memory, compared with the file's.

use super::{
    error::{Error, Result},
    image::Function,
    memory::Memory,
};

/// The `nop` of ten bytes that Linux 7.2 replaces by another instruction and a call, for a uprobe.
const NOP10: [u8; 10] = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
/// Number of its bytes that are there again when the uprobe is gone. The others, its operand, stay a call: a thread may be
/// between the two.
const RESTORED: usize = 5;
const CALL: u8 = 0xe8;

impl Function {
    /// An error where the function in memory, or the padding behind it, isn't the file's.
    pub fn check(&self, memory: &Memory) -> Result<()> {
        self.check_except(memory, |_| None)
    }

    /// The same, where `original` has the file's bytes for addresses that are known to be replaced.
    pub(super) fn check_except(
        &self,
        memory: &Memory,
        original: impl Fn(u64) -> Option<u8>,
    ) -> Result<()> {
        let expected: Vec<u8> = self.code.iter().chain(&self.padding).copied().collect();
        let mut actual = memory.read_vec(self.address, expected.len())?;
        for (byte, address) in actual.iter_mut().zip(self.address..) {
            *byte = original(address).unwrap_or(*byte);
        }
        forgive_calls(&expected, &mut actual);
        match expected
            .iter()
            .zip(&actual)
            .position(|(expected, actual)| expected != actual)
        {
            None => Ok(()),
            Some(offset) => Err(Error::Changed {
                function: self.name.clone(),
                offset: offset as u64,
                expected: expected[offset],
                found: actual[offset],
            }),
        }
    }
}

/// Makes operands of such a `nop` the file's: it does nothing, whatever they are.
fn forgive_calls(expected: &[u8], actual: &mut [u8]) {
    let nops = expected.windows(NOP10.len()).enumerate();
    for (at, _) in nops.filter(|(_, bytes)| *bytes == NOP10) {
        let found = &mut actual[at..at + NOP10.len()];
        if found[..RESTORED] == NOP10[..RESTORED] && found[RESTORED] == CALL {
            found.copy_from_slice(&NOP10);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_in_the_operand_of_a_nop_is_forgiven() {
        let expected = [&[0x55][..], &NOP10, &[0xc3]].concat();
        let after = |changes: &[(usize, u8)]| {
            let mut actual = expected.clone();
            for &(at, byte) in changes {
                actual[at] = byte;
            }
            forgive_calls(&expected, &mut actual);
            actual == expected
        };
        assert!(after(&[]));
        assert!(after(&[(6, CALL), (7, 1), (8, 2), (9, 3), (10, 4)]));
        // Another operand, the uprobe itself, a breakpoint over its rest, and the bytes around it.
        assert!(!after(&[(6, 1)]));
        assert!(!after(&[(1, 0x48), (6, CALL)]));
        assert!(!after(&[(1, 0xcc), (6, CALL)]));
        assert!(!after(&[(0, 0x54), (6, CALL)]));
        assert!(!after(&[(11, 0x90), (6, CALL)]));
    }
}
