//! Restoring the input between two runs of a program: as little as one run changes.

use super::{kind::ProgramKind, spliced::STATE_WORDS};

/// Bytes that [`Restore::Front`] writes (`PROGRAM_FRONT_BYTES`).
const FRONT_BYTES: usize = 64;

/// Words of the state of an XDP program (`program_xdp.bpf.c`).
const META: usize = 0;
const DATA: usize = 1;
const DATA_END: usize = 2;
/// Word of the state of an skb (`program_skb.bpf.c`).
const LENGTH: usize = 0;

/// Changes that one run makes, and how they are undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// The part that is undone.
    pub restore: Restore,
    /// The words of the context's state that one run moves, a bit each: what moves them back is called in any case.
    pub moved: u64,
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
    /// The change of a program that changes nothing.
    pub const NOTHING: Change = Change {
        restore: Restore::None,
        moved: 0,
        context_words: 0,
        context_rest: 0,
        turns: 0,
        window: 0,
    };

    /// The change from the packet of each run to the next one, where packets take turns on which runs change these.
    pub fn to_next(changes: &[Change]) -> Self {
        let at_head = |change: &Change| change.restore == Restore::All { tail: false };
        Change {
            restore: Restore::All {
                tail: !changes.iter().any(at_head),
            },
            moved: changes.iter().fold(0, |all, one| all | one.moved),
            turns: changes.len() as u32,
            ..Change::NOTHING
        }
    }

    /// Constants of the driver, by name.
    pub(super) fn constants(&self, kind: ProgramKind) -> Vec<(&'static str, u64)> {
        // Packets that take turns may have different lengths.
        let halves = self.turns > 0 || self.moved != 0;
        let mut constants = vec![
            ("program_restore", self.restore.class()),
            ("program_halves", u64::from(halves)),
            ("program_turns", u64::from(self.turns)),
        ];
        match kind {
            ProgramKind::Xdp => constants.push(("program_moved", self.moved)),
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

/// The words that these changes move, a bit each.
pub(super) fn moved(kind: ProgramKind, changes: &[i64; STATE_WORDS]) -> u64 {
    let moves = match kind {
        // Metadata is what lies between two of them.
        ProgramKind::Xdp => [
            (META, changes[DATA] != changes[META]),
            (DATA, changes[DATA] != 0),
            (DATA_END, changes[DATA_END] != 0),
        ]
        .to_vec(),
        ProgramKind::Tc => vec![(LENGTH, changes[LENGTH] != 0)],
        ProgramKind::CgroupSkb
        | ProgramKind::SocketFilter
        | ProgramKind::RawTracepoint
        | ProgramKind::Syscall => Vec::new(),
    };
    let bit = |(word, moves): (usize, bool)| u64::from(moves) << word;
    moves.into_iter().map(bit).sum()
}

/// Part that is undone after each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Restore {
    /// Nothing: the program changes nothing.
    None,
    /// Start and end of a frame, and its metadata; fields of an skb.
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
    /// Finds what one run of a program changes: from the packet that it got and the one that it left, and the change of
    /// each word of the state.
    pub(super) fn new(
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

    /// Value in drivers (`enum program_restore_class`).
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
        Restore::new(ProgramKind::Xdp, &PACKET, output, &changes)
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
    fn what_is_moved_back_in_any_case_is_what_a_run_moves() {
        let moved = |kind, moves: [i64; 3]| {
            let mut changes = [0; STATE_WORDS];
            changes[..3].copy_from_slice(&moves);
            moved(kind, &changes)
        };
        let xdp = |moves| moved(ProgramKind::Xdp, moves);
        assert_eq!(xdp([0, 0, 0]), 0);
        // 20 bytes in front, without metadata; 8 bytes of metadata; 10 bytes less at the end.
        assert_eq!(xdp([-20, -20, 0]), 0b010);
        assert_eq!(xdp([-8, 0, 0]), 0b001);
        assert_eq!(xdp([0, 0, -10]), 0b100);
        assert_eq!(xdp([-28, -20, 5]), 0b111);
        assert_eq!(moved(ProgramKind::Tc, [5, 0, 0]), 1);
        assert_eq!(moved(ProgramKind::Tc, [0, 5, 0]), 0);
        assert_eq!(moved(ProgramKind::Syscall, [5, 0, 0]), 0);
        // Of packets that take turns, whatever one of them moves.
        let alone = [0b001, 0b100].map(|moved| Change {
            moved,
            ..Change::NOTHING
        });
        assert_eq!(Change::to_next(&alone).moved, 0b101);
    }

    #[test]
    fn a_short_frame_is_restored_whole() {
        let changes = [0; STATE_WORDS];
        let restore = Restore::new(ProgramKind::Xdp, &[1; 60], &[2; 60], &changes);
        assert_eq!(restore, Restore::All { tail: false });
    }

    #[test]
    fn an_skb_gets_longer_at_either_end() {
        let skb = |kind, output: &[u8], word: usize, change: i64| {
            let mut changes = [0; STATE_WORDS];
            changes[word] = change;
            Restore::new(kind, &PACKET, output, &changes)
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
