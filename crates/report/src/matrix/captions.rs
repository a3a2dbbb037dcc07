//! Captions for several targets side by side.

use super::Matrix;
use crate::{misses, target, view::grid::note_caption};
use bpfcost_record::Reference;
use bpfcost_text::{line, number};

impl Matrix<'_> {
    /// Captions, which say how to read the table.
    pub fn captions(&self) -> Vec<String> {
        let (columns, heads) = (&self.columns, &self.table.heads);
        let mut captions = Vec::new();
        captions.extend(self.grid.as_ref().map(|grid| {
            let net = line(&grid.net);
            format!("Costs are net: {net}. Comparisons are of net too. Sorted by the cost on the first target.")
        }));
        let noted = self.grid.as_ref().filter(|_| self.table.has_remarks());
        captions.extend(noted.map(note_caption));
        for column in columns {
            let unit = target::unit_caption(column.record);
            captions.extend(unit.filter(|words| !captions.contains(words)));
        }
        let counts = |at: &usize| columns[*at].record.unit.is_counted();
        let compared = (0..columns.len()).filter(|at| heads[*at].against.is_some());
        let (counted, timed): (Vec<usize>, Vec<usize>) = compared.partition(counts);
        if !counted.is_empty() {
            let differ = "Counts differ where their ranges over loads do not overlap. same: equal in every load.";
            captions.push(differ.to_owned());
        }
        let firsts = columns.iter().filter(|one| one.against == Reference::First);
        if firsts.count() > 1 {
            captions.push("Targets that measure differently are not compared.".to_owned());
        }
        if let Some(spread) = self.session_spread {
            let all: usize = timed
                .into_iter()
                .map(|at| self.differences(at).count())
                .sum();
            let margins = columns.iter().map(|one| one.record.asked.margin);
            captions.push(format!(
                "Times are from separate sessions: the 95 % intervals of differences are widened by {}{}. The \
                 verdicts account for all {all} comparisons. same: certainly within {}.",
                number::round_percent(spread.share),
                match spread.freedom {
                    Some(_) => "",
                    None => " (assumed: too few sessions are known)",
                },
                number::round_percent(margins.fold(0.0, f64::max))
            ));
        }
        captions.extend(columns.iter().filter_map(|one| misses::caption(one.record)));
        for (column, head) in columns.iter().zip(heads) {
            let label = &head.label;
            captions.extend(match &column.against {
                Reference::Nothing(reason) => {
                    Some(format!("{label} is not compared: {}.", line(reason)))
                }
                Reference::Column(first) if !column.also_differs.is_empty() => Some(format!(
                    "{label} differs from {} in more than the kernel: {}.",
                    heads[*first].label,
                    line(&column.also_differs.join("; "))
                )),
                Reference::First | Reference::Column(_) => None,
            });
        }
        if self.left_out > 0 {
            let sessions = number::plural(self.left_out, "earlier session");
            captions.push(format!("Not shown: {sessions} of the same targets."));
        }
        captions
    }
}
