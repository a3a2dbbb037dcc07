//! The share of a core that the cases of a grid cost at a rate (`--rate`), and the rate that a share of a core pays
//! for (`--core-share`). Computed from net costs when a record is shown.

use crate::{
    case_table::CellRow,
    style::Style,
    table::{self, Cell, Head, Table},
    target,
    view::grid::GridTable,
};
use bpfcost_model::Role;
use bpfcost_record::{CaseRecord, CostEstimate, Record, Status};
use bpfcost_text::{
    line,
    number::{self, HOLD, MISSING},
};

/// Nanoseconds of a core in a second.
const CORE_NS: f64 = 1e9;

/// The rate and the share of a core that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EventLoad {
    /// Events a second.
    pub rate: Option<f64>,
    /// The share of one core that they may take; 0.01 is 1 %.
    pub core_share: Option<f64>,
}

/// Net cost of a case in nanoseconds; `None` where there is no such number.
fn cost(case: &CaseRecord, record: &Record) -> Option<CostEstimate> {
    let net = case.net.as_ref()?;
    let has_cost =
        case.status == Status::Ok && case.role == Role::Case && !record.unit.is_counted();
    let value = net.value.filter(|value| value.is_finite())?;
    has_cost.then_some(CostEstimate {
        value,
        ci95: net.ci95,
    })
}

/// Cost of a case as a share of a core at `rate` operations a second; 1 is a whole core.
pub fn share(case: &CaseRecord, record: &Record, rate: f64) -> Option<CostEstimate> {
    let of_core = |ns: f64| rate * ns / CORE_NS;
    let cost = cost(case, record)?;
    Some(CostEstimate {
        value: of_core(cost.value),
        ci95: cost.ci95.map(|ends| ends.map(of_core)),
    })
}

/// The highest rate of events, per second, that is shown to cost no more than `share` of a core: by
/// the upper end of the interval. `None` without an interval, or where its upper end is not above zero.
pub fn most(case: &CaseRecord, record: &Record, share: f64) -> Option<f64> {
    let [_, dearest] = cost(case, record)?.ci95?;
    let rate = share * CORE_NS / dearest;
    (dearest > 0.0 && rate.is_finite()).then_some(rate)
}

/// The answers for a record whose cases span a grid; none where nothing is asked, or it has none.
pub fn tables(record: &Record, load: EventLoad) -> Vec<Table> {
    let Some(grid_table) = GridTable::new(record).filter(|_| load != EventLoad::default()) else {
        return Vec::new();
    };
    if record.unit.is_counted() {
        let caption = "insn are not ns: counts of instructions do not show the share of a core.";
        return vec![Table {
            title: format!("Rates on {}", target::label(record)),
            captions: vec![caption.to_owned()],
            ..Table::default()
        }];
    }
    let shares = load.rate.map(|rate| {
        let title = format!("CPU of one core at {}, percent", per_second(rate, f64::round));
        let caption = "The rate times the net cost. ±: reach of the 95 % interval. below: not distinguishable from \
            zero; this is the upper end of the interval.";
        table(&grid_table, title, caption, |case| {
            let share = share(case, record, rate)?;
            Some(Cell::number(percent(share, case), share.value))
        })
    });
    let rates = load.core_share.map(|share| {
        let title = format!(
            "Highest rates within {} of one core",
            number::round_percent(share)
        );
        let caption =
            "From the upper end of each 95 % interval, rounded down; empty without an interval.";
        table(&grid_table, title, caption, |case| {
            let rate = most(case, record, share)?;
            Some(Cell::number(per_second(rate, f64::floor), rate))
        })
    });
    let mut tables: Vec<Table> = shares.into_iter().chain(rates).collect();
    if let Some(last) = tables.last_mut() {
        let warm = "Costs are of operations back to back. Rare operations cost more.";
        last.captions.push(warm.to_owned());
        let emulated = target::unit_caption(record).filter(|_| record.machine.emulates_time());
        last.captions.extend(emulated);
    }
    tables
}

/// The rows of a grid that have a cost, with an answer in each cell.
fn table(
    grid_table: &GridTable<'_>,
    title: String,
    caption: &str,
    cell: impl Fn(&CaseRecord) -> Option<Cell>,
) -> Table {
    let name = Head::words(line(&grid_table.grid.rows));
    let mut columns = vec![name.cells(|row: &CellRow<'_>| Cell::words(&row.name))];
    let cell = &cell;
    let heads = grid_table.table.heads.iter().enumerate();
    columns.extend(heads.map(|(at, head)| {
        Head::number(&head.label).cells(move |row: &CellRow<'_>| {
            let case = row.cells[at].case.as_deref();
            case.and_then(cell).unwrap_or_default()
        })
    }));
    let costs = |row: &&CellRow<'_>| row.cells.iter().any(|cell| cell.cost.is_some());
    Table {
        title: format!("{title}, {}", target::label(grid_table.record)),
        captions: vec![caption.to_owned()],
        ..Table::new(columns, grid_table.rows().iter().filter(costs))
    }
}

/// `0.402 ±0.007`, or `below 0.02` where the cost is indistinguishable from zero.
fn percent(share: CostEstimate, case: &CaseRecord) -> String {
    let value = share.value * 100.0;
    let Some([low, high]) = share.ci95.map(|ends| ends.map(|end| end * 100.0)) else {
        return number::fixed(value, number::plain_decimals(value));
    };
    let distinguishable = case.net.as_ref().is_some_and(|net| net.distinguishable);
    if !distinguishable {
        return if high > 0.0 {
            format!(
                "below {}",
                number::fixed(high, number::plain_decimals(high))
            )
        } else {
            MISSING.to_owned()
        };
    }
    let reach = (value - low).max(high - value);
    let decimals = number::decimals(reach);
    let [value, reach] = [value, reach].map(|number| number::fixed(number, decimals));
    format!("{value}{HOLD}±{reach}")
}

/// `200k/s`, with three digits at most, rounded as said.
pub fn per_second(rate: f64, round: impl Fn(f64) -> f64) -> String {
    let scales = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];
    let (scale, unit) = scales
        .into_iter()
        .find(|(scale, _)| rate >= *scale)
        .unwrap_or((1.0, ""));
    let scaled = rate / scale;
    let decimals = number::plain_decimals(scaled).min(2);
    let factor = 10_f64.powi(i32::try_from(decimals).unwrap_or(0));
    // What is a hair below a round number by the floats' own rounding is that number.
    let text = number::fixed(round(scaled * factor * (1.0 + 1e-12)) / factor, decimals);
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}/s")
}

/// The answers for a terminal.
pub fn terminal(record: &Record, load: EventLoad, style: Style) -> String {
    super::table::plain(&tables(record, load), |table, out| {
        table.terminal(out, style)
    })
}

/// The answers as Markdown, below a text that ends with its last line.
pub fn markdown(record: &Record, load: EventLoad) -> String {
    match table::plain(&tables(record, load), Table::markdown) {
        text if text.is_empty() => text,
        text => format!("\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        let whole = |rate| per_second(rate, f64::round);
        assert_eq!(whole(200e3), "200k/s");
        assert_eq!(whole(1.5e6), "1.5M/s");
        assert_eq!(whole(500.0), "500/s");
        assert_eq!(whole(0.5), "0.5/s");
        assert_eq!(per_second(1_239_999.0, f64::floor), "1.23M/s");
        assert_eq!(per_second(999_999.0, f64::floor), "999k/s");
    }
}
