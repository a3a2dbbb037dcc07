//! The table in a sentence: which way is the cheapest, which the dearest.

use super::{Row, Sheet};
use crate::{
    record::Cost,
    report::{number, target, text, words},
};

/// More than this many that can't be told apart are counted, not named.
const NAMED: usize = 3;

/// The table in a sentence without its end; `None` where no cell has a number.
pub fn sentence(sheet: &Sheet<'_>) -> Option<String> {
    let record = sheet.record;
    let start = format!(
        "{} on {}",
        text::line(&record.experiment),
        target::label(record)
    );
    let column = (0..sheet.columns.len()).find(|column| !costs(sheet, *column).is_empty())?;
    let costs = costs(sheet, column);
    let told = |&(row, cost): &(&Row<'_>, Cost)| {
        let ci95 = cost.ends.filter(|_| !record.unit.is_counted());
        let decimals = words::decimals(cost.value, ci95, record.unit).min(1);
        format!(
            "{}, {} {}",
            row.name,
            number::fixed(cost.value, decimals),
            record.unit
        )
    };
    let (first, last) = (costs.first()?, costs.last()?);
    let with = format!("with {} {}", grid_column(sheet), sheet.columns[column]);
    if costs.len() == 1 {
        return Some(format!("{start}: {} {with}", told(first)));
    }
    let alike = |other: &(&Row<'_>, Cost)| match (first.1.ends, other.1.ends) {
        (Some([_, high]), Some([low, _])) => low <= high,
        _ => false,
    };
    let cheapest = match costs[1..].iter().take_while(|cost| alike(cost)).count() {
        0 => format!("the cheapest of {} is {}", costs.len(), told(first)),
        more if more < NAMED => {
            let names: Vec<&str> = costs[..=more]
                .iter()
                .map(|one| one.0.name.as_str())
                .collect();
            let (last, names) = names.split_last()?;
            format!(
                "the cheapest of {} are {} and {last}, not told apart ({})",
                costs.len(),
                names.join(", "),
                told(first)
            )
        }
        more => format!(
            "the cheapest of {} are {} that are not told apart ({})",
            costs.len(),
            more + 1,
            told(first)
        ),
    };
    if alike(last) {
        return Some(format!("{start}: {with} {cheapest}"));
    }
    let times = last.1.value / first.1.value;
    let times = match times.is_finite() && times >= 1.5 && first.1.value > 0.0 {
        true => format!(
            ", {} times as much",
            number::fixed(times, usize::from(times < 9.95))
        ),
        false => String::new(),
    };
    Some(format!(
        "{start}: {with} {cheapest}; the dearest is {}{times}",
        told(last)
    ))
}

fn grid_column(sheet: &Sheet<'_>) -> String {
    let grid = sheet.record.layout.grid();
    grid.map_or_else(String::new, |grid| text::line(&grid.columns))
}

/// The rows that have a number in a column, cheapest first.
fn costs<'a>(sheet: &'a Sheet<'_>, column: usize) -> Vec<(&'a Row<'a>, Cost)> {
    let cost = |row: &'a Row<'a>| Some((row, row.cells.get(column)?.cost?));
    let mut costs: Vec<_> = sheet.rows.iter().filter_map(cost).collect();
    costs.sort_by(|a, b| a.1.value.total_cmp(&b.1.value));
    costs
}
