//! The comparison as a table for people.

use std::fmt::Write;

use super::{all_rows, captions, one_sided, sentence};
use crate::{
    record::{Changes, Gate},
    report::{
        number,
        style::{Style, Tone},
        table::{self, Grid},
        text,
    },
};

/// The comparison as a person reads it on a terminal.
pub fn render(changes: &Changes, style: Style) -> String {
    let mut out = String::new();
    let summary = text::wrap(&sentence(changes), style.width, "");
    let summary = match changes.gate {
        Gate::Passed => style.bold(&summary),
        Gate::Regressed | Gate::Invalid => style.alarm(&summary),
    };
    let _ = writeln!(out, "{summary}\n");
    let rows = all_rows(changes);
    if !rows.is_empty() {
        let [mut old, mut new] = [
            rows.iter().map(|row| row.old.clone()).collect::<Vec<_>>(),
            rows.iter().map(|row| row.new.clone()).collect::<Vec<_>>(),
        ];
        number::align(&mut old, ' ', ' ');
        number::align(&mut new, ' ', ' ');
        let counted = changes.cases.iter().all(|change| change.unit.is_counted());
        let change = if counted { "change" } else { "change, 95 %" };
        let header = ["case", "old", "new", change, "", "verdict"];
        let mut grid = Grid::new(&header, &[1, 2, 3], style);
        let mut heading = None;
        for ((row, old), new) in rows.iter().zip(old).zip(new) {
            if heading != Some(&row.heading) {
                grid.heading(&row.heading);
                heading = Some(&row.heading);
            }
            grid.row(vec![
                (format!("  {}", row.case), Tone::Plain),
                (old, Tone::Plain),
                (new, Tone::Plain),
                (row.relative.clone(), Tone::Plain),
                (row.interval.clone(), Tone::Plain),
                (row.verdict.clone(), row.tone),
            ]);
        }
        out.push_str(&grid.render());
        for words in captions(changes) {
            table::caption(&mut out, words, style);
        }
    }
    for line in one_sided(changes) {
        table::caption(&mut out, &line, style);
    }
    let warnings = changes.warnings.iter();
    let warnings: Vec<String> = warnings.map(|warning| text::line(&warning.text)).collect();
    table::warning_lines(&mut out, &warnings, style);
    number::plain_spaces(&out)
}
