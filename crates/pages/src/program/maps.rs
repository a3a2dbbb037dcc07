//! Table of the changes that runs of a program make in maps.

use bpfcost_model::{Behaviour, Drift, MIX, Role};
use bpfcost_record::Record;
use bpfcost_report::{
    section::Detail,
    table::{Cell, Head, Table},
};
use bpfcost_text::{self, number};

/// Rows that a terminal shows unless all are asked for.
const BRIEF: usize = 6;
const CAPTION: &str = "By how much one run changes a number in a map or a variable, or the number of entries of a table.";

/// A place that runs of a program change.
struct Row {
    program: String,
    place: String,
    /// Change by one run, for each packet.
    per_run: Vec<Option<i64>>,
    drift: Option<Drift>,
}

/// A row for each program and each place that its runs change.
pub(super) fn table(record: &Record, detail: Detail) -> Option<Table> {
    let mut rows = rows(record);
    let all = rows.len();
    if detail == Detail::Brief {
        // Rows that drift from run to run come first; the sort is stable.
        rows.sort_by_key(|row| row.drift.is_none());
        rows.truncate(BRIEF);
    }
    let mut captions = vec![CAPTION.to_owned()];
    if all > rows.len() {
        captions.push(format!("{} more: --verbose.", all - rows.len()));
    }
    let columns = vec![
        Head::words("program").cells(|row: &Row| Cell::words(bpfcost_text::line(&row.program))),
        Head::words("map or variable")
            .cells(|row: &Row| Cell::words(bpfcost_text::line(&row.place))),
        Head::number("per run").cells(|row: &Row| amount(&row.per_run)),
        Head::words("so that")
            .cells(|row: &Row| Cell::words(row.drift.map_or(String::new(), words))),
    ];
    Some(Table {
        title: "What a run changes".to_owned(),
        captions,
        ..Table::new(columns, &rows).filled()?
    })
}

fn rows(record: &Record) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for case in record.cases.iter().filter(|case| case.role == Role::Case) {
        let behaviour = case.observed.clone().map(serde_json::from_value);
        let Some(Ok(Behaviour {
            per_run, drifts, ..
        })) = behaviour
        else {
            continue;
        };
        // Changes by a cycle of packets are not amounts of one run.
        let is_mix = case
            .factors
            .get("packet")
            .is_some_and(|packet| packet == MIX);
        if is_mix {
            continue;
        }
        let program = super::program(case);
        let replaced = drifts.keys().filter(|place| !per_run.contains_key(*place));
        for place in per_run.keys().chain(replaced) {
            let known = rows
                .iter()
                .position(|row| row.program == program && row.place == *place);
            let at = known.unwrap_or_else(|| {
                rows.push(Row {
                    program: program.clone(),
                    place: place.clone(),
                    per_run: Vec::new(),
                    drift: None,
                });
                rows.len() - 1
            });
            rows[at].per_run.extend(per_run.get(place));
            rows[at].drift = rows[at].drift.or(drifts.get(place).copied());
        }
    }
    rows
}

/// One amount, the least and the most of several, or that they differ from run to run.
fn amount(per_run: &[Option<i64>]) -> Cell {
    let amounts: Option<Vec<i64>> = per_run.iter().copied().collect();
    let ends = amounts
        .as_ref()
        .map(|all| (all.iter().min().copied(), all.iter().max().copied()));
    let signed = |amount: i64| number::signed(amount as f64, 0);
    match ends {
        Some((Some(least), Some(most))) if least == most => {
            Cell::number(signed(least), least as f64)
        }
        Some((Some(least), Some(most))) => Cell::number(
            format!("{} to {}", signed(least), signed(most)),
            most as f64,
        ),
        Some(_) => Cell::default(),
        None => Cell::words("varies"),
    }
}

fn words(drift: Drift) -> String {
    match drift {
        Drift::Grows { entries, room } => format!(
            "no two runs find it the same ({} of {} entries)",
            number::count(entries),
            number::count(room)
        ),
        Drift::Replaced => "entries are replaced by others".to_owned(),
        Drift::Full { room } => format!("it became full ({} entries)", number::count(room)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_one_or_a_range() {
        let text = |per_run: &[Option<i64>]| amount(per_run).text;
        assert_eq!(text(&[Some(1), Some(1)]), "+1");
        assert_eq!(text(&[Some(3), Some(-2)]), "−2 to +3");
        assert_eq!(text(&[Some(1), None]), "varies");
        assert_eq!(text(&[]), "");
    }
}
