//! The clock of a guest that counts, in its saved state: QEMU keeps the number of instructions executed, and derives the
//! time from that and from how long an instruction takes, which is an argument of QEMU's and not in the state.

use std::{
    fs::File,
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
};

/// A part of the state: a byte that says so, its name with the length before, and its version. Two numbers follow, each of 64
/// bits with the highest byte first: what the clock is ahead by, in nanoseconds, and the instructions.
const PART: &[u8] = b"\x05\x0ctimer/icount\x00\x00\x00\x01";

/// Bytes at the end of a state in which the part is looked for: behind the guest's memory, which may have anything in it. The
/// devices take about a tenth of that.
const DEVICES: u64 = 1 << 20;

/// Makes a state that was saved where an instruction takes 2^`shift` ns one for QEMU where it takes one: the time stays the
/// same. Fails where the part is not found, or not once, and then changes nothing.
pub(crate) fn slow_down(state: &Path, shift: u32) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(state)?;
    let length = file.seek(SeekFrom::End(0))?;
    let begin = length.saturating_sub(DEVICES);
    file.seek(SeekFrom::Start(begin))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    let (at, ahead) = ahead_when_slowed(&end, shift)
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no clock in QEMU's state"))?;
    file.seek(SeekFrom::Start(begin + at as u64))?;
    file.write_all(&ahead.to_be_bytes())
}

/// Offset of what the clock is ahead by, and its value for an instruction of one nanosecond.
fn ahead_when_slowed(state: &[u8], shift: u32) -> Option<(usize, i64)> {
    let found = |state: &[u8]| state.windows(PART.len()).position(|bytes| bytes == PART);
    let at = found(state)? + PART.len();
    let (numbers, rest) = state[at..].split_at_checked(16)?;
    if found(rest).is_some() {
        return None;
    }
    let number = |bytes: &[u8]| Some(i64::from_be_bytes(bytes.try_into().ok()?));
    let (ahead, instructions) = (number(&numbers[..8])?, number(&numbers[8..])?);
    let time = instructions.checked_mul(1 << shift)?;
    let ahead = ahead.checked_add(time.checked_sub(instructions)?)?;
    (ahead >= 0 && instructions > 0).then_some((at, ahead))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(ahead: i64, instructions: i64) -> Vec<u8> {
        let [ahead, instructions] = [ahead, instructions].map(i64::to_be_bytes);
        [b"memory", PART, &ahead, &instructions, b"~rest"].concat()
    }

    #[test]
    fn the_time_stays_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("state");
        std::fs::write(&file, state(5, 1000)).expect("written");
        slow_down(&file, 3).expect("it is a state");
        // 5 + 8 * 1000 = 7005 + 1000.
        assert_eq!(std::fs::read(&file).expect("there"), state(7005, 1000));
    }

    #[test]
    fn what_is_no_state_is_left_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("state");
        for bytes in [
            b"anything".to_vec(),
            state(5, 1000)[..30].to_vec(),
            state(5, 1000).repeat(2),
            state(5, 0),
            state(5, -1),
            state(5, i64::MAX / 4),
        ] {
            std::fs::write(&file, &bytes).expect("written");
            let error = slow_down(&file, 3).expect_err("no state");
            assert_eq!(error.to_string(), "no clock in QEMU's state");
            assert_eq!(std::fs::read(&file).expect("there"), bytes);
        }
    }
}
