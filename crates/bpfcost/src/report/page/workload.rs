//! What the page shows of a workload: curves along a factor, where CPU time goes, latencies, small tables, how to
//! read them; and every value of every case.

use serde::Serialize;

use super::{
    blocks::BlockPart,
    scaling::Figure,
    tables::{Row, Table, columns, number_cell, words_cell},
};
use crate::{
    record::{CaseRecord, Part, Record},
    report::{
        block::Block,
        figure::stack,
        number, text,
        workload::{self, Overhead, curves, latencies, stacks},
    },
};

/// A workload.
#[derive(Serialize)]
pub(super) struct WorkloadPart {
    curves: Vec<Figure>,
    stacks: Vec<Figure>,
    latencies: Vec<Figure>,
    blocks: Vec<BlockPart>,
    /// Each state, where `blocks` go along a factor; the calls that probes counted.
    details: Vec<BlockPart>,
    /// How to read it, and what each probe does.
    prose: Vec<String>,
    variants: Vec<(String, String)>,
}

impl WorkloadPart {
    pub(super) fn new(overhead: &Overhead<'_>) -> Self {
        let told = overhead.states.workload;
        let parts = |blocks: Vec<Block>| blocks.into_iter().map(BlockPart::new).collect();
        let stacked = |stack: &stack::Stack| Figure {
            title: stack.title.clone(),
            figure: stack::render(stack),
        };
        WorkloadPart {
            curves: curves(overhead).iter().map(Figure::new).collect(),
            stacks: stacks(overhead).iter().map(stacked).collect(),
            latencies: latencies(overhead).iter().map(Figure::new).collect(),
            blocks: parts(overhead.blocks(true)),
            details: parts([overhead.details(), overhead.calls()].concat()),
            prose: text::block(&told.prose)
                .split("\n\n")
                .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
                .filter(|paragraph| !paragraph.is_empty())
                .collect(),
            variants: told
                .variants
                .iter()
                .map(|(name, about)| (text::line(name), text::line(about)))
                .collect(),
        }
    }
}

/// Cases beside each other in a table: so many find room on paper.
const BESIDE: usize = 6;

/// Every value of every case, a few cases a table.
pub(super) fn tables(record: &Record) -> Vec<Table> {
    let parts = record.cases.chunks(BESIDE);
    let several = parts.len() > 1;
    parts.map(|cases| table(record, cases, several)).collect()
}

fn table(record: &Record, cases: &[CaseRecord], several: bool) -> Table {
    let cell = |part: Option<Part>| {
        let text = part.map_or_else(String::new, workload::shown);
        number_cell(text, part.map(|part| part.value))
    };
    let row = |name: String, values: Vec<Option<Part>>| Row {
        tone: None,
        cells: std::iter::once(words_cell(name))
            .chain(values.into_iter().map(cell))
            .collect(),
    };
    let own = |case: &CaseRecord| {
        case.raw.as_ref().map(|raw| Part {
            value: raw.value,
            ci95: raw.ci95,
        })
    };
    let first = row(record.unit.to_string(), cases.iter().map(own).collect());
    let others = record.secondary_names().into_iter().map(|name| {
        let values = cases.iter().map(|case| case.secondary_part(name));
        row(text::line(name), values.collect())
    });
    let names: Vec<String> = cases.iter().map(|case| text::line(&case.name)).collect();
    let mut heads = vec![("value", false)];
    heads.extend(names.iter().map(|name| (name.as_str(), true)));
    Table {
        title: match (names.as_slice(), several) {
            ([first, .., last], true) => format!("All values, {first} to {last}").into(),
            ([only], true) => format!("All values, {only}").into(),
            _ => "All values".into(),
        },
        caption: "Values over epochs, with how far their 95\u{A0}% intervals reach; CPU times (_ns) per \
                  operation. Percentiles of latency are those of a window, of which the middle one counts."
            .to_owned(),
        rows: std::iter::once(first).chain(others).collect(),
        columns: columns(&heads),
    }
}

/// The method in a few paragraphs.
pub(super) fn method(record: &Record) -> Vec<String> {
    let margin = number::round_percent(record.asked.margin);
    [
        "CPU time per operation leads. Throughput hides what a probe costs wherever something else is the \
         bottleneck, the client or the network; then the server has time to spare, pays for the probe from \
         it, and serves as many operations as before."
            .to_owned(),
        "Probes go on and off on the same running server, in windows next to each other and in random order. \
         The server is started anew for each epoch: some start faster than others, and only differences \
         within an epoch count. Each case is reduced to its median in the epoch, and only epochs are inferred \
         from."
            .to_owned(),
        format!(
            "Estimates are Hodges–Lehmann, intervals come from the exact signed-rank test over epochs. A \
             probe makes no difference where the 90 % interval lies within ±{margin} of CPU time; else it \
             costs more or less where the test says so with all comparisons allowed for; else it is \
             unresolved, which is not the same as none."
        ),
        "Every window proves itself: the operations were served, and where a probe has to see all of them, \
         it did. A case that fails once has no number. Attaching and detaching lie outside the windows, and \
         are told apart."
            .to_owned(),
    ]
    .into()
}
