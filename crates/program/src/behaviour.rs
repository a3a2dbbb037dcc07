//! What a run of a program does, from what the kernel shows of it.

use bpfcost_bpf::program::{self, MapChanges};
use bpfcost_model::{Behaviour, Drift};

/// What a run returns and leaves, and what it changes; and the most runs of a window, or 0.
pub fn behaviour(code: u32, packet: &[u8], maps: MapChanges, window: u32) -> Behaviour {
    let drifts = maps.drifts.into_iter();
    Behaviour {
        code: code.cast_signed(),
        returned: None,
        length: packet.len(),
        packet: packet.to_vec(),
        per_run: maps.per_run,
        window: (window > 0).then_some(window),
        drifts: drifts
            .map(|(place, drift)| (place, as_fact(drift)))
            .collect(),
        unread: maps.unread,
    }
}

fn as_fact(drift: program::Drift) -> Drift {
    match drift {
        program::Drift::Grows { entries, room } => Drift::Grows { entries, room },
        program::Drift::Replaced => Drift::Replaced,
        program::Drift::Full { room } => Drift::Full { room },
    }
}
