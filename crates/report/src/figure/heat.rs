//! Heat maps of tables of cases: differences between targets, and costs of a grid.

use super::{
    forest::class_and_sign,
    tiles::{self, Tile},
};
use crate::{
    case_table::{CaseCell, CaseTable, ColumnHead},
    matrix::{self, Matrix},
    verdict,
};
use bpfcost_record::VerdictRecord;

/// Number of targets from which there are several figures, because a cell would not hold its words on a phone.
pub(crate) const MAX_COLUMNS: usize = 5;
/// Shares from which a difference is shown darker.
const LEVELS: [f64; 3] = [0.01, 0.05, 0.20];
/// Shades of costs, from the cheapest to the most expensive.
const SHADES: f64 = 6.0;
pub(crate) const DIFFERENCES_KEY: &str = "<span class=\"key\"><i class=\"k-heat less\"></i> ▼ costs less</span> \
    <span class=\"key\"><i class=\"k-heat more\"></i> ▲ costs more</span> \
    <span class=\"key\"><i class=\"k-heat same\"></i> = the same</span> \
    <span class=\"key\"><i class=\"k-heat open\"></i> ? unresolved</span>";
pub(crate) const DIFFERENCES_CAPTION: &str = "Stronger colours beyond 1\u{A0}%, 5\u{A0}% and 20\u{A0}%. Targets \
    without a comparison show the cost.";
pub(crate) const COSTS_KEY: &str = "<span class=\"key\"><i class=\"k-cost\"></i> stronger colour: higher cost, on a log scale</span>";

/// Differences between targets, in the colour of the verdict, darker if larger. The first target of a kind shows costs.
pub(crate) fn differences(matrix: &Matrix<'_>, columns: &[usize]) -> String {
    let groups = matrix.groups(false);
    tiles::figure(&matrix.table, groups, columns, difference)
}

fn difference(cell: &CaseCell<'_>, head: &ColumnHead) -> Tile {
    let Some(difference) = &cell.difference else {
        return Tile {
            text: cell.marked(),
            ..Tile::new(head, cell, "value".to_owned(), &[])
        };
    };
    let size = difference.relative.abs();
    let level = LEVELS.iter().filter(|level| size > **level).count() + 1;
    let (class, sign) = class_and_sign(difference.verdict);
    let class = match difference.verdict {
        VerdictRecord::Slower | VerdictRecord::Faster => format!("{class} l{level}"),
        _ => class.to_owned(),
    };
    let (relative, interval) = matrix::relative(difference);
    let change = format!("{relative} {interval}");
    let more = [change.trim_end(), verdict::word(difference.verdict).0];
    Tile {
        text: format!("{sign} {relative}"),
        class: class.clone(),
        ..Tile::new(head, cell, class, &more)
    }
}

/// Costs of a grid, darker if higher; the shade is logarithmic, because costs differ by orders of magnitude.
pub(crate) fn costs(table: &CaseTable<'_>) -> String {
    let cells = table.rows().flat_map(|row| &row.cells);
    let costs = cells.filter_map(|cell| cell.cost.map(|cost| cost.value));
    let logs = costs.filter(|value| *value > 0.0).map(f64::ln);
    let ends = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| {
        (low.min(log), high.max(log))
    });
    let columns: Vec<usize> = (0..table.heads.len()).collect();
    tiles::figure(table, &table.groups, &columns, |cell, head| {
        cost(cell, head, ends)
    })
}

fn cost(cell: &CaseCell<'_>, head: &ColumnHead, (low, high): (f64, f64)) -> Tile {
    let class = cell.cost.map_or("none".to_owned(), |cost| {
        let share = (cost.value.ln() - low) / (high - low);
        let shade = if share.is_finite() {
            (share * SHADES).floor().clamp(0.0, SHADES - 1.0)
        } else {
            0.0
        };
        format!("cost s{shade}")
    });
    Tile {
        // Short enough for a phone.
        text: match cell.case {
            Some(_) => cell.marked().to_lowercase(),
            None => "·".to_owned(),
        },
        ..Tile::new(head, cell, class, &[])
    }
}
