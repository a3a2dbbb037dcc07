//! Which lines take more or fewer instructions than they did in the version that is compared with, in a table.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    OLD,
    hot::{Spots, count, most, place},
};
use bpfcost_model::HotLine;
use bpfcost_report::{
    section::Detail,
    table::{Cell, Head, Table},
};
use bpfcost_text::{self, number};

const CAPTION: &str = "Instructions of one run by line of the source, with what it calls, if they are not as many as in the \
    old version. Lines are the same if they say the same, wherever they stand.";

/// A line that changed.
struct Row<'a> {
    case: &'a str,
    line: &'a HotLine,
    old: u64,
    new: u64,
}

/// A row for each line that changed, those that changed most first.
pub(super) fn table(spots: &[Spots<'_>], detail: Detail) -> Option<Table> {
    let mut rows = Vec::new();
    let mut hidden = 0;
    for (case, new) in spots {
        let before = format!("{}/{OLD}", case.name);
        let Some((_, old)) = spots.iter().find(|(case, _)| case.name == before) else {
            continue;
        };
        let mut changed = changed(&case.name, &new.lines, &old.lines);
        hidden += changed.len().saturating_sub(most(detail));
        changed.truncate(most(detail));
        rows.extend(changed);
    }
    let mut captions = vec![CAPTION.to_owned()];
    if hidden > 0 {
        captions.push(format!("{hidden} more lines: --verbose."));
    }
    let columns = vec![
        Head::words("case").cells(|row: &Row<'_>| Cell::words(bpfcost_text::line(row.case))),
        Head::number("old").cells(|row: &Row<'_>| count(row.old)),
        Head::number("new").cells(|row: &Row<'_>| count(row.new)),
        Head::number("change").cells(|row: &Row<'_>| {
            let change = row.new as f64 - row.old as f64;
            Cell::number(number::signed(change, 0), change)
        }),
        Head::words("line").cells(|row: &Row<'_>| Cell::words(place(row.line))),
        Head::words("source")
            .cells(|row: &Row<'_>| Cell::words(bpfcost_text::line(&row.line.text))),
    ];
    Some(Table {
        title: "Lines that changed".to_owned(),
        captions,
        ..Table::new(columns, &rows).filled()?
    })
}

/// The lines of two versions, the new one's place first, by what they say.
fn changed<'a>(case: &'a str, new: &'a [HotLine], old: &'a [HotLine]) -> Vec<Row<'a>> {
    let mut rows: BTreeMap<&str, Row<'a>> = BTreeMap::new();
    let both = new.iter().map(|line| (line, true));
    let both = both.chain(old.iter().map(|line| (line, false)));
    for (line, is_new) in both {
        let row = rows.entry(&line.text).or_insert(Row {
            case,
            line,
            old: 0,
            new: 0,
        });
        let side = if is_new { &mut row.new } else { &mut row.old };
        *side += line.own + line.called;
    }
    let mut rows: Vec<Row<'a>> = rows
        .into_values()
        .filter(|row| row.old != row.new)
        .collect();
    rows.sort_by_key(|row| Reverse(row.new.abs_diff(row.old)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_known_by_what_they_say() {
        let line = |line, text: &str, own| HotLine {
            file: "x.c".to_owned(),
            line,
            text: text.to_owned(),
            own,
            called: 1,
        };
        let old = [
            line(1, "same", 4),
            line(2, "dearer", 4),
            line(3, "gone", 2),
            line(9, "twice", 1),
            line(10, "twice", 2),
        ];
        let new = [
            line(2, "same", 4),
            line(3, "new", 1),
            line(4, "dearer", 9),
            line(7, "twice", 4),
        ];
        let rows = changed("case", &new, &old);
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (&*row.line.text, row.line.line, row.old, row.new))
            .collect();
        assert_eq!(
            rows,
            [("dearer", 4, 5, 10), ("gone", 3, 3, 0), ("new", 3, 0, 2)],
            "and two that say the same are one"
        );
    }
}
