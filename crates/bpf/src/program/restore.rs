//! What is undone between two runs of a program: as little as what one run changes.

use super::{kind::ProgramKind, spliced::STATE_WORDS};

/// Bytes that [`Restore::Front`] writes (`PROGRAM_FRONT_BYTES`).
const FRONT_BYTES: usize = 64;

/// Words of the state of an XDP program (`program_xdp.bpf.c`).
const META: usize = 0;
const DATA: usize = 1;
const DATA_END: usize = 2;
/// Word of the state of an skb (`program_skb.bpf.c`).
const LENGTH: usize = 0;

/// What one run changes, and how it is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// What is undone.
    pub restore: Restore,
    /// How much each word of the context's state changes.
    pub words: [i64; STATE_WORDS],
    /// Words of 8 bytes of the context; 0 of packets.
    pub context_words: u64,
    /// Bytes of the context behind them, less than a word.
    pub context_rest: u64,
    /// Packets that take turns; 0: all runs get the same one.
    pub turns: u32,
    /// The most runs of a window; 0 if it is spliced.
    pub window: u32,
}

impl Change {
    /// Of a program that changes nothing.
    pub const NOTHING: Change = Change {
        restore: Restore::None,
        words: [0; STATE_WORDS],
        context_words: 0,
        context_rest: 0,
        turns: 0,
        window: 0,
    };

    /// What makes the packet of each run the next one, where packets take turns on which runs change these.
    pub fn to_next(changes: &[Change]) -> Self {
        let at_head = |change: &Change| change.restore == Restore::All { tail: false };
        Change {
            restore: Restore::All {
                tail: !changes.iter().any(at_head),
            },
            words: std::array::from_fn(|at| {
                let mut words = changes.iter().map(|change| change.words[at]);
                words.find(|&word| word != 0).unwrap_or(0)
            }),
            turns: changes.len() as u32,
            ..Change::NOTHING
        }
    }

    /// What an XDP driver moves back in any case: a bit for each word that one run moves. Metadata is what lies between two.
    fn moved(&self) -> u64 {
        let moves = [
            (META, self.words[DATA] != self.words[META]),
            (DATA, self.words[DATA] != 0),
            (DATA_END, self.words[DATA_END] != 0),
        ];
        let bit = |(word, moves): (usize, bool)| u64::from(moves) << word;
        moves.into_iter().map(bit).sum()
    }

    /// Constants of the driver, by name.
    pub(super) fn constants(&self, kind: ProgramKind) -> Vec<(&'static str, u64)> {
        let halves = match kind {
            // Packets may have different lengths.
            _ if self.turns > 0 => true,
            ProgramKind::Xdp => self.words.iter().any(|&word| word != 0),
            ProgramKind::Tc => self.words[LENGTH] != 0,
            _ => false,
        };
        let mut constants = vec![
            ("program_restore", self.restore.class()),
            ("program_halves", u64::from(halves)),
            ("program_turns", u64::from(self.turns)),
        ];
        match kind {
            ProgramKind::Xdp => constants.push(("program_moved", self.moved())),
            ProgramKind::Tc => {
                let tail = self.restore == Restore::All { tail: true };
                constants.push(("program_tail", u64::from(tail)));
            }
            ProgramKind::Syscall => constants.extend([
                ("program_context_words", self.context_words),
                ("program_context_rest", self.context_rest),
            ]),
            _ => {}
        }
        constants
    }
}

/// What is undone after each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Restore {
    /// Nothing: the program changes nothing.
    None,
    /// Where a frame begins and ends, and its metadata; fields of an skb.
    State,
    /// And the first 64 bytes, by stores.
    Front,
    /// And all bytes, by a helper; a context's by stores. `tail`: an skb gets longer and shorter at its end.
    All {
        /// See above.
        tail: bool,
    },
}

impl Restore {
    /// What one run of a program changes: the packet that it got and the one that it left, and how much each word of the
    /// state changed.
    pub(super) fn of(
        kind: ProgramKind,
        packet: &[u8],
        output: &[u8],
        changes: &[i64; STATE_WORDS],
    ) -> Self {
        let changed = match kind {
            ProgramKind::Xdp => changed_in_frame(packet, output, changes),
            ProgramKind::Tc if changes[LENGTH] != 0 => {
                let tail = packet.starts_with(output) || output.starts_with(packet);
                return Restore::All { tail };
            }
            ProgramKind::Tc => changed_in_place(packet, output),
            // These types can't write to packets.
            ProgramKind::CgroupSkb | ProgramKind::SocketFilter | ProgramKind::RawTracepoint => None,
            ProgramKind::Syscall => changed_in_place(packet, output),
        };
        match changed {
            None if changes.iter().all(|&change| change == 0) => Restore::None,
            None => Restore::State,
            Some(last)
                if kind == ProgramKind::Xdp
                    && last < FRONT_BYTES
                    && packet.len() >= FRONT_BYTES =>
            {
                Restore::Front
            }
            Some(_) => Restore::All { tail: false },
        }
    }

    /// Its value in drivers (`enum program_restore_class`).
    pub(super) fn class(self) -> u64 {
        match self {
            Restore::None => 0,
            Restore::State => 1,
            Restore::Front => 2,
            Restore::All { .. } => 3,
        }
    }
}

/// The last byte of a frame that one run changed, or took away. What a test run hands back begins with the metadata.
fn changed_in_frame(packet: &[u8], output: &[u8], changes: &[i64; STATE_WORDS]) -> Option<usize> {
    (0..packet.len()).rev().find(|&at| {
        let position = at as i64 - changes[META];
        let left = usize::try_from(position).ok();
        let is_removed = (at as i64) < changes[DATA];
        is_removed || left.and_then(|left| output.get(left)) != Some(&packet[at])
    })
}

fn changed_in_place(packet: &[u8], output: &[u8]) -> Option<usize> {
    (0..packet.len())
        .rev()
        .find(|&at| output.get(at) != Some(&packet[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 100] = [7; 100];

    fn xdp(output: &[u8], moves: [i64; 3]) -> Restore {
        let mut changes = [0; STATE_WORDS];
        changes[..3].copy_from_slice(&moves);
        Restore::of(ProgramKind::Xdp, &PACKET, output, &changes)
    }

    #[test]
    fn xdp_restores_what_one_run_changed() {
        assert_eq!(xdp(&PACKET, [0, 0, 0]), Restore::None);
        let with = |at: usize| {
            let mut output = PACKET;
            output[at] = 8;
            output
        };
        assert_eq!(xdp(&with(63), [0, 0, 0]), Restore::Front);
        assert_eq!(xdp(&with(64), [0, 0, 0]), Restore::All { tail: false });
        // 20 bytes in front.
        let pushed = [&[1; 20][..], &PACKET].concat();
        assert_eq!(xdp(&pushed, [-20, -20, 0]), Restore::State);
        let mut also = pushed;
        also[30] = 8;
        assert_eq!(xdp(&also, [-20, -20, 0]), Restore::Front);
        // 8 bytes of metadata, which come first.
        let described = [&[1; 8][..], &PACKET].concat();
        assert_eq!(xdp(&described, [-8, 0, 0]), Restore::State);
        // Bytes that were taken away are lost.
        assert_eq!(xdp(&PACKET[14..], [14, 14, 0]), Restore::Front);
        assert_eq!(
            xdp(&PACKET[..90], [0, 0, -10]),
            Restore::All { tail: false }
        );
        let longer = [&PACKET[..], &[0; 10]].concat();
        assert_eq!(xdp(&longer, [0, 0, 10]), Restore::State);
    }

    #[test]
    fn a_short_frame_is_restored_whole() {
        let changes = [0; STATE_WORDS];
        let restore = Restore::of(ProgramKind::Xdp, &[1; 60], &[2; 60], &changes);
        assert_eq!(restore, Restore::All { tail: false });
    }

    #[test]
    fn an_skb_gets_longer_at_either_end() {
        let skb = |kind, output: &[u8], word: usize, change: i64| {
            let mut changes = [0; STATE_WORDS];
            changes[word] = change;
            Restore::of(kind, &PACKET, output, &changes)
        };
        let tc = |output: &[u8], word, change| skb(ProgramKind::Tc, output, word, change);
        assert_eq!(tc(&PACKET, 1, 0), Restore::None);
        assert_eq!(tc(&PACKET, 1, 5), Restore::State);
        assert_eq!(tc(&PACKET[..50], LENGTH, -50), Restore::All { tail: true });
        let pushed = [&[1; 20][..], &PACKET].concat();
        assert_eq!(tc(&pushed, LENGTH, 20), Restore::All { tail: false });
        assert_eq!(tc(&[8; 100], LENGTH, 0), Restore::All { tail: false });
        let cgroup = skb(ProgramKind::CgroupSkb, &[0; 100], 1, 0);
        assert_eq!(cgroup, Restore::None);
    }
}
