//! A workload as sections: curves along a factor, tables, CPU time by part, latencies, how to read them; and every
//! value of every case.

use super::{WorkloadReport, plot, quantity::estimate_text};
use crate::{
    figure::{curve, stack},
    section::{Detail, Fact, Facts, Figure, Figures, Order, Prose, Section, table_sections},
    table::{Cell, Head, Table},
};
use bpfcost_record::{CaseRecord, CostEstimate};
use bpfcost_text::{block, line};

/// Cases beside each other in a table: the number that has room on paper.
const BESIDE: usize = 6;
const CURVES: &str = "Both axes are logarithmic. Bars are 95 % intervals over epochs, each with a fresh server. \
    Differences on the same server are more precise; the tables show them.";
const STACKS: &str = "CPU time of the whole machine while the load ran, by process. The line is the 95 % interval \
    of the total. The rest is kernel work for all processes, and all other processes.";
const LATENCIES: &str = "At the percentiles that the client reports, with 95 % intervals over epochs. A client \
    that waits for each answer before its next request hides the longest latencies; one at a fixed rate does not.";

impl WorkloadReport<'_> {
    /// The first sections of a view.
    pub(crate) fn sections(&self, detail: Detail) -> Vec<Section> {
        let all = detail >= Detail::Full;
        let (tables, details) = self.tables(all);
        if detail != Detail::Page {
            return table_sections(tables.into_iter().chain(details));
        }
        let small = |title: &str, caption: &str, figures: Vec<Figure>| {
            let figures = Figures::titled(title, String::new(), caption.to_owned(), figures)?;
            let order = Order::Small;
            Some(Section::Figures(Figures { order, ..figures }))
        };
        let curves = plot::curves(self).iter().map(curve::figure).collect();
        let stacked = |stack: &stack::Stack| Figure {
            title: stack.title.clone(),
            markup: stack::render(stack),
        };
        let stacks = plot::stacks(self).iter().map(stacked).collect();
        let latencies = plot::latencies(self).iter().map(curve::figure).collect();
        let mut sections = Vec::new();
        sections.extend(small("How it grows", CURVES, curves));
        sections.extend(table_sections(tables));
        sections.extend(small("Where the CPU time goes", STACKS, stacks));
        sections.extend(small("Latency of operations", LATENCIES, latencies));
        sections.extend(table_sections(details));
        sections.extend(self.how_to_read());
        sections.extend(table_sections(self.values()));
        sections
    }

    /// Description of the workload and of each probe.
    fn how_to_read(&self) -> [Section; 2] {
        let workload = self.states.workload;
        let prose = block(&workload.prose);
        let paragraphs = prose.split("\n\n").map(line);
        let variants = workload.variants.iter();
        [
            Section::Prose(Prose {
                title: "How to read it".to_owned(),
                paragraphs: paragraphs
                    .filter(|words| !words.trim().is_empty())
                    .collect(),
                ..Prose::default()
            }),
            Section::Facts(Facts {
                title: "What each probe does".to_owned(),
                facts: variants
                    .map(|(name, about)| Fact::new(line(name), line(about)))
                    .collect(),
            }),
        ]
    }

    /// Every value of every case, a few cases a table.
    fn values(&self) -> impl Iterator<Item = Table> {
        let record = self.states.record;
        let parts = record.cases.chunks(BESIDE);
        let several = parts.len() > 1;
        parts.map(move |cases| {
            let own_value = |case: &CaseRecord| {
                let raw = case.raw.as_ref()?;
                let (value, ci95) = (raw.value, raw.ci95);
                Some(CostEstimate { value, ci95 })
            };
            // `None` is the value of the case itself.
            type Name<'a> = Option<&'a str>;
            let value = move |name: &Name<'_>| {
                Cell::words(name.map_or_else(|| record.unit.to_string(), line))
            };
            let mut columns = vec![Head::words("value").cells(value)];
            columns.extend(cases.iter().map(|case| {
                Head::number(line(&case.name)).cells(move |name: &Name<'_>| {
                    let part = name.map_or_else(|| own_value(case), |name| case.secondary_part(name));
                    let cell = |part: CostEstimate| Cell::number(estimate_text(part), part.value);
                    part.map_or_else(Cell::default, cell)
                })
            }));
            let rows = record.secondary_names().into_iter().map(Some);
            let rows: Vec<Name<'_>> = std::iter::once(None).chain(rows).collect();
            let names: Vec<String> = cases.iter().map(|case| line(&case.name)).collect();
            Table {
                title: match (names.as_slice(), several) {
                    ([first, .., last], true) => format!("All values, {first} to {last}"),
                    ([only], true) => format!("All values, {only}"),
                    _ => "All values".to_owned(),
                },
                captions: vec![
                    "Values over epochs; ±: reach of the 95\u{A0}% interval. CPU times (_ns) are per operation. \
                     Percentiles of latency are those of the median window."
                        .to_owned(),
                ],
                ..Table::new(columns, &rows)
            }
        })
    }
}
