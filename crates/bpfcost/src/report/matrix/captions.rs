//! What to know to read several targets side by side.

use super::{Head, Matrix};
use crate::{
    record::{Against, Record},
    report::{missed, number, target, text},
};

impl Matrix<'_> {
    /// What to know to read it.
    pub fn captions(&self) -> Vec<String> {
        let columns = &self.across.columns;
        let counted = |unit: crate::experiment::Unit| unit.is_counted();
        let any =
            |wanted: &dyn Fn(&Record) -> bool| columns.iter().any(|column| wanted(column.record));
        let compared = |is_counted: bool| {
            columns.iter().any(|column| {
                matches!(column.against, Against::Column(_))
                    && counted(column.record.unit) == is_counted
            })
        };
        let mut captions = Vec::new();
        if self.grid.is_some() {
            captions.push(
                "Costs are net: what an event costs with the program attached, less what it costs without \
                 (its floor). What is compared is net too. Sorted by the cost on the first target."
                    .to_owned(),
            );
        }
        if any(&|record| counted(record.unit)) {
            captions.push(
                "insn/op: retired instructions per operation, counted under emulation. insn are not ns: \
                 caches, branches and TLBs are not modelled."
                    .to_owned(),
            );
        }
        if compared(true) {
            captions.push(
                "Counts differ where the loads on one kernel and on the other do not meet; same means equal \
                 in every load. This describes kernels: as a gate, `bpfcost compare` refuses counts of \
                 different ones."
                    .to_owned(),
            );
        }
        captions.extend(self.sessions_caption());
        if any(&|record| target::is_emulated(record) && record.contends) {
            captions.push(target::NO_SPEED.to_owned());
        } else if any(&target::is_emulated) {
            captions.push(
                "emulated: times of an emulator, not of hardware; they are compared with nothing but times \
                 of the same emulator."
                    .to_owned(),
            );
        }
        let records = columns.iter().map(|column| column.record);
        captions.extend(records.filter_map(missed::caption));
        let kinds = columns
            .iter()
            .filter(|column| column.against == Against::First);
        if kinds.count() > 1 {
            captions.push(
                "Targets that measure differently stand side by side and are not compared."
                    .to_owned(),
            );
        }
        for (column, head) in columns.iter().zip(&self.heads) {
            captions.extend(self.column_caption(column, head));
        }
        if self.across.left_out > 0 {
            let sessions = number::plural(self.across.left_out, "earlier session");
            captions.push(format!("Of the same targets, {sessions} left out here."));
        }
        captions
    }

    fn sessions_caption(&self) -> Option<String> {
        let (share, known) = self.across.session_spread?;
        let timed = |column: &crate::record::Standing<'_>| {
            matches!(column.against, Against::Column(_)) && !column.record.unit.is_counted()
        };
        let all: usize = (0..self.heads.len())
            .filter(|index| timed(&self.across.columns[*index]))
            .map(|index| self.differences(index).count())
            .sum();
        let margin = self
            .across
            .columns
            .iter()
            .map(|column| column.record.asked.margin);
        let margin = number::round_percent(margin.fold(0.0, f64::max));
        let known = if known {
            ""
        } else {
            ", as is assumed where nobody ran self-test"
        };
        let of = match self.grid {
            Some(_) => " of what was measured, floor and all",
            None => "",
        };
        Some(format!(
            "Times are those of separate sessions: 95 % intervals of differences are widened by how far \
             sessions differ ({}{of}{known}), verdicts allow for all {all} comparisons; same: surely within \
             {margin}.",
            number::round_percent(share)
        ))
    }

    fn column_caption(&self, column: &crate::record::Standing<'_>, head: &Head) -> Option<String> {
        match &column.against {
            Against::First => None,
            Against::Nothing(reason) => Some(format!(
                "{} is not compared: {}.",
                head.label,
                text::line(reason)
            )),
            Against::Column(_) if column.also_differs.is_empty() => None,
            Against::Column(first) => Some(format!(
                "{} differs from {} in more than the kernel, and differences include that: {}.",
                head.label,
                self.heads[*first].label,
                text::line(&column.also_differs.join("; "))
            )),
        }
    }
}
