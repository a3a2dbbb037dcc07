//! What probes cost a workload: a sentence, and small tables in which CPU time per operation leads. Made once
//! for all views.

mod drops;
mod plot;
mod quantity;
mod sections;
mod sentence;
mod state;

use std::collections::BTreeMap;

use self::quantity::Quantity;
pub(crate) use self::quantity::{Scale, held};
use crate::{
    record::{Record, State, States},
    report::{block::Block, number, text},
};

/// A record of a workload.
#[derive(Debug)]
pub struct Overhead<'a> {
    /// Its cases, by the states of the server.
    pub states: States<'a>,
    pub(crate) headline: Quantity<'a>,
    pub(crate) metrics: Vec<Quantity<'a>>,
    pub(crate) of_probes: Vec<Quantity<'a>>,
}

impl<'a> Overhead<'a> {
    /// What a record tells of a workload; `None` where none ran.
    pub fn new(record: &'a Record) -> Option<Self> {
        let states = States::of(record)?;
        Some(Overhead {
            headline: Quantity::headline(states.workload),
            metrics: Quantity::metrics(&states),
            of_probes: Quantity::of_probes(&states),
            states,
        })
    }

    /// The record in a sentence without its end; `None` where no case has a result.
    pub fn sentence(&self) -> Option<String> {
        sentence::sentence(self)
    }

    /// The tables, most important first; where CPU times come from, where all is wanted.
    pub fn blocks(&self, all: bool) -> Vec<Block> {
        let mut blocks = match self.states.over() {
            Some(over) => drops::blocks(self, over),
            None => self.state_blocks(),
        };
        if let Some(last) = blocks.last_mut() {
            last.captions.extend(self.captions(all));
        }
        blocks
    }

    /// The tables of every state, where those of [`blocks`](Self::blocks) go along a factor.
    pub fn details(&self) -> Vec<Block> {
        match self.states.over() {
            Some(_) => self.state_blocks(),
            None => Vec::new(),
        }
    }

    fn state_blocks(&self) -> Vec<Block> {
        let states = self.states.all.iter();
        states
            .flat_map(|state| state::blocks(self, state))
            .collect()
    }

    /// How to read the tables; where CPU times come from, where all is wanted.
    fn captions(&self, all: bool) -> Vec<String> {
        let record = self.states.record;
        let noise = record.spread.noise.map(|[low, high]| {
            let decimals = number::estimate_decimals(high - low, Some([low, high])).min(1);
            let [low, high] = [low, high].map(|end| number::signed(end, decimals));
            format!(
                "Off against off in this run: {low} to {}; a probe that does nothing reads like that.",
                quantity::held(&high, "%")
            )
        });
        let mut captions = Vec::from_iter(noise);
        captions.push(self.margins());
        captions.push(
            "Another run of the same workload differs by more than these intervals know: compare probes in \
             one run."
                .to_owned(),
        );
        let sources = record.machine.programs.as_deref().filter(|_| all);
        captions.extend(sources.map(|sources| format!("CPU time of {}.", text::line(sources))));
        captions
    }

    /// What counts as the same, of which value.
    fn margins(&self) -> String {
        let record = self.states.record;
        let mut margins: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut told = |margin: f64, name: &str| {
            let names = margins.entry(number::round_percent(margin)).or_default();
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        };
        told(record.asked.margin, "CPU");
        for metric in &record.metrics {
            let name = text::line(&metric.metric.about);
            // `latency, median` and `latency, 99th percentile` are one.
            let name = name.split(',').next().unwrap_or_default();
            let name = if name.starts_with("CPU") { "CPU" } else { name };
            told(metric.metric.margin, name);
        }
        let same: Vec<String> = margins
            .iter()
            .map(|(margin, names)| format!("{margin} of {}", names.join(" and ")))
            .collect();
        format!(
            "Intervals are 95 %, differences are taken on the same server. same: within {}; unresolved: \
             not told apart yet.",
            same.join(", ")
        )
    }

    /// `size 4, load open`; empty where there is one state alone.
    pub(crate) fn state_name(&self, state: &State<'a>) -> String {
        match self.states.all.len() {
            1 => String::new(),
            _ => named(state.apart("")),
        }
    }

    /// What a table is about, in a state.
    pub(crate) fn title(&self, what: &str, state: &State<'a>) -> String {
        match self.state_name(state).as_str() {
            "" => what.to_owned(),
            name => format!("{what}, {name}"),
        }
    }
}

/// `size 4, load open`.
pub(crate) fn named<'s>(values: impl Iterator<Item = (&'s str, &'s str)>) -> String {
    let named: Vec<String> = values
        .map(|(factor, value)| text::line(&format!("{factor} {value}")))
        .collect();
    named.join(", ")
}
