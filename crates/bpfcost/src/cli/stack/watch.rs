//! Events on the terminal, as they happen.

use std::{collections::HashMap, rc::Rc};

use anyhow::Result;
use bpfcost_bpf::{stack_counter::StackReport, unwind::Generation};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    cli::output::heard,
    stack::{self, SymbolHistory},
};

/// Stacks that are kept as text at most.
const TEXTS_KEPT: usize = 1 << 12;

/// Shows events as they happen.
pub(super) struct Watch {
    begun_ns: u64,
    pub(super) symbols: SymbolHistory,
    /// Stacks as text, so that a frequent one is written once.
    texts: HashMap<(Rc<[u64]>, Generation), String>,
    /// Nobody reads the answer any more (`| head -1`).
    pub(super) reader_left: bool,
}

impl Watch {
    pub(super) fn new(symbols: SymbolHistory) -> Self {
        Watch {
            begun_ns: monotonic_ns(),
            symbols,
            texts: HashMap::new(),
            reader_left: false,
        }
    }

    pub(super) fn show(&mut self, reports: &[StackReport]) -> Result<()> {
        if reports.is_empty() || self.reader_left {
            return Ok(());
        }
        let mut lines = String::new();
        for report in reports {
            lines.push_str(&stack::event(report, self.begun_ns));
            if self.texts.len() > TEXTS_KEPT {
                self.texts.clear();
            }
            let key = (Rc::clone(&report.addresses), report.generation);
            let text = self.texts.entry(key);
            lines.push_str(text.or_insert_with(|| stack::frames(report, &self.symbols)));
            lines.push_str(stack::end(report));
        }
        self.reader_left = !heard(format_args!("{lines}"))?;
        Ok(())
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
