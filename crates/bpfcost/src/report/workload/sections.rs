//! A workload as sections: curves along a factor, tables, where CPU time goes, latencies, how to read them; and
//! every value of every case.

use super::{Overhead, plot, quantity::shown};
use crate::{
    record::{CaseRecord, Part},
    report::{
        block::{Block, Cell, Head},
        figure::{curve, stack},
        section::{Detail, Fact, Facts, Figure, Figures, Order, Prose, Section, tables},
        text,
    },
};

/// Cases beside each other in a table: so many find room on paper.
const BESIDE: usize = 6;
/// How to read curves along a factor.
const CURVES: &str = "Both axes are logarithmic. Bars are 95 % intervals, of servers that were started anew: \
                      differences on the same server are known better, and stand in the tables.";
/// How to read bars of CPU time.
const STACKS: &str = "All of the machine while the load ran, by whose processes used it. The line is the 95 % interval \
                      of the whole. The rest is the kernel's own work for everybody, and whatever else ran.";
/// How to read distributions.
const LATENCIES: &str = "Empirical distributions, read at the percentiles that the client tells: so many of the \
                         operations took at most so long. Time is on a logarithmic axis, the share of operations on one \
                         that spreads both ends. A mark is the estimate over epochs, its bar the 95 % interval. A client \
                         that waits for each answer before it asks again hides the longest of them; one at a fixed rate \
                         does not.";

impl Overhead<'_> {
    /// What leads a view.
    pub(in crate::report) fn sections(&self, detail: Detail) -> Vec<Section> {
        let all = detail >= Detail::Full;
        let blocks = self.blocks(all);
        let details = if all { self.details() } else { Vec::new() };
        if detail != Detail::Page {
            return tables(blocks.into_iter().chain(details));
        }
        let small = |title: &str, caption: &str, figures: Vec<Figure>| {
            let figures = Figures {
                title: title.to_owned(),
                caption: caption.to_owned(),
                figures,
                order: Order::Small,
                ..Figures::default()
            };
            (!figures.figures.is_empty()).then_some(Section::Figures(figures))
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
        sections.extend(tables(blocks));
        sections.extend(small("Where the CPU time goes", STACKS, stacks));
        sections.extend(small("How long operations take", LATENCIES, latencies));
        sections.extend(tables(details));
        sections.extend(self.how_to_read());
        sections.extend(tables(self.values()));
        sections
    }

    /// What was written about the workload, and what each probe does.
    fn how_to_read(&self) -> [Section; 2] {
        let workload = self.states.workload;
        let prose = text::block(&workload.prose);
        let paragraphs = prose.split("\n\n").map(text::line);
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
                    .map(|(name, about)| Fact::new(text::line(name), text::line(about)))
                    .collect(),
            }),
        ]
    }

    /// Every value of every case, a few cases a table.
    fn values(&self) -> impl Iterator<Item = Block> {
        let record = self.states.record;
        let parts = record.cases.chunks(BESIDE);
        let several = parts.len() > 1;
        parts.map(move |cases| {
            let cell = |part: Option<Part>| {
                part.map_or_else(Cell::default, |part| Cell::number(shown(part), part.value))
            };
            let row = |name: String, value: &dyn Fn(&CaseRecord) -> Option<Part>| {
                let values = cases.iter().map(|case| cell(value(case)));
                std::iter::once(Cell::words(name)).chain(values).collect()
            };
            let own = |case: &CaseRecord| {
                let raw = case.raw.as_ref()?;
                let (value, ci95) = (raw.value, raw.ci95);
                Some(Part { value, ci95 })
            };
            let names = record.secondary_names();
            let others = names
                .into_iter()
                .map(|name| row(text::line(name), &|case| case.secondary_part(name)));
            let rows = std::iter::once(row(record.unit.to_string(), &own)).chain(others);
            let names: Vec<String> = cases.iter().map(|case| text::line(&case.name)).collect();
            let heads = names.iter().map(Head::number);
            Block {
                title: match (names.as_slice(), several) {
                    ([first, .., last], true) => format!("All values, {first} to {last}"),
                    ([only], true) => format!("All values, {only}"),
                    _ => "All values".to_owned(),
                },
                rows: rows.collect(),
                head: std::iter::once(Head::words("value")).chain(heads).collect(),
                captions: vec![
                    "Values over epochs, with how far their 95\u{A0}% intervals reach; CPU times (_ns) per \
                     operation. Percentiles of latency are those of a window, of which the middle one counts."
                        .to_owned(),
                ],
                ..Block::default()
            }
        })
    }
}
