//! What to know to read several targets side by side.

use super::{Head, Matrix};
use crate::{
    record::{Against, Record, Standing},
    report::{missed, number, target, text},
};

const COUNTED: &str = "insn/op: retired instructions per operation, counted under emulation. insn are not ns: \
                       caches, branches and TLBs are not modelled.";
const COUNTS_DIFFER: &str = "Counts differ where the loads on one kernel and on the other do not meet; same means \
                             equal in every load. This describes kernels: as a gate, `bpfcost compare` refuses counts \
                             of different ones.";
const EMULATED: &str = "emulated: times of an emulator, not of hardware; they are compared with nothing but times \
                        of the same emulator.";
const KINDS: &str = "Targets that measure differently stand side by side and are not compared.";

impl Matrix<'_> {
    /// What to know to read it.
    pub fn captions(&self) -> Vec<String> {
        let columns = &self.across.columns;
        let any = |wanted: &dyn Fn(&Record) -> bool| columns.iter().any(|one| wanted(one.record));
        let counts_differ = columns.iter().any(|column| {
            matches!(column.against, Against::Column(_)) && column.record.unit.is_counted()
        });
        let contend = any(&|record| target::is_emulated(record) && record.contends);
        let firsts = columns.iter().filter(|one| one.against == Against::First);
        let fixed = [
            (any(&|record| record.unit.is_counted()), COUNTED),
            (counts_differ, COUNTS_DIFFER),
            (contend, target::NO_SPEED),
            (!contend && any(&target::is_emulated), EMULATED),
            (firsts.count() > 1, KINDS),
        ];
        let fixed = fixed.into_iter().filter(|one| one.0);
        let sessions = self.left_out();
        let missed = columns.iter().filter_map(|one| missed::caption(one.record));
        let own = columns.iter().zip(&self.heads);
        let own = own.filter_map(|(column, head)| self.column_caption(column, head));
        let net = self.grid.as_ref().map(|grid| {
            format!(
                "Costs are net: {}. What is compared is net too. Sorted by the cost on the first target.",
                text::line(&grid.net)
            )
        });
        net.into_iter()
            .chain(fixed.map(|one| one.1.to_owned()))
            .chain(self.sessions_caption())
            .chain(missed)
            .chain(own)
            .chain(sessions)
            .collect()
    }

    fn sessions_caption(&self) -> Option<String> {
        let (share, known) = self.across.session_spread?;
        let timed = |index: &usize| {
            let column = &self.across.columns[*index];
            matches!(column.against, Against::Column(_)) && !column.record.unit.is_counted()
        };
        let compared = (0..self.heads.len()).filter(timed);
        let all: usize = compared.map(|index| self.differences(index).count()).sum();
        let margins = self
            .across
            .columns
            .iter()
            .map(|one| one.record.asked.margin);
        let margin = number::round_percent(margins.fold(0.0, f64::max));
        let known = if known {
            ""
        } else {
            ", as is assumed where nobody ran self-test"
        };
        let of = self
            .grid
            .as_ref()
            .map_or("", |_| " of what was measured, floor and all");
        Some(format!(
            "Times are those of separate sessions: 95 % intervals of differences are widened by how far \
             sessions differ ({}{of}{known}), verdicts allow for all {all} comparisons; same: surely within \
             {margin}.",
            number::round_percent(share)
        ))
    }

    fn column_caption(&self, column: &Standing<'_>, head: &Head) -> Option<String> {
        let label = &head.label;
        match &column.against {
            Against::Nothing(reason) => {
                Some(format!("{label} is not compared: {}.", text::line(reason)))
            }
            Against::Column(first) if !column.also_differs.is_empty() => Some(format!(
                "{label} differs from {} in more than the kernel, and differences include that: {}.",
                self.heads[*first].label,
                text::line(&column.also_differs.join("; "))
            )),
            Against::First | Against::Column(_) => None,
        }
    }

    fn left_out(&self) -> Option<String> {
        let sessions = number::plural(self.across.left_out, "earlier session");
        (self.across.left_out > 0)
            .then(|| format!("Of the same targets, {sessions} left out here."))
    }
}
