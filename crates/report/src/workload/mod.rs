//! The cost of probes to a workload, the same for all views: a sentence, and small tables that begin with CPU time
//! per operation.

mod plot;
mod quantity;
mod sections;
mod sentence;
mod tables;

use self::quantity::{ChangeText, Quantity};
pub use self::quantity::{Scale, with_unit};
pub(crate) use self::sentence::sentence;
use crate::{budget, table::Table};
use bpfcost_record::{CaseRecord, Record, State, States};
use bpfcost_text::{line, number};

/// A record of a workload, with the quantities that its tables show.
#[derive(Debug)]
pub struct WorkloadReport<'a> {
    /// Cases by the states of the server.
    pub states: States<'a>,
    headline: Quantity<'a>,
    total: Option<Quantity<'a>>,
    metrics: Vec<Quantity<'a>>,
    probes: Vec<Quantity<'a>>,
}

impl<'a> WorkloadReport<'a> {
    /// The report of a record's workload; `None` where none ran.
    pub fn new(record: &'a Record) -> Option<Self> {
        let states = States::from_record(record)?;
        Some(WorkloadReport {
            headline: Quantity::headline(states.workload),
            total: Quantity::total(&states),
            metrics: Quantity::metrics(&states),
            probes: Quantity::probes(&states),
            states,
        })
    }

    /// The tables, most important first; and those of every state, where the first go along a factor.
    fn tables(&self, all: bool) -> (Vec<Table>, Vec<Table>) {
        let states = || {
            self.states
                .all
                .iter()
                .flat_map(|state| tables::state_tables(self, state))
        };
        let (mut tables, details): (Vec<Table>, Vec<Table>) = match self.states.over() {
            Some(over) => (
                tables::along(self, over),
                states().filter(|_| all).collect(),
            ),
            None => (states().collect(), Vec::new()),
        };
        if let Some(last) = tables.last_mut() {
            last.captions = self.captions(all);
        }
        (tables, details)
    }

    /// Captions, which say how to read the tables; with `all`, also the sources of CPU times.
    fn captions(&self, all: bool) -> Vec<String> {
        let record = self.states.record;
        let noise = self.noise();
        let headline = (&self.headline.name, record.asked.margin);
        let metrics = self.metrics.iter();
        let metrics = metrics.filter_map(|one| Some((&one.name, one.margin()?)));
        let margins = std::iter::once(headline).chain(metrics);
        let margins =
            margins.map(|(name, margin)| format!("{name} {}", number::round_percent(margin)));
        let operation = line(&self.states.workload.operation);
        let total = self.total.as_ref().map_or_else(String::new, |_| {
            format!(
                " In total: the CPU time of all windows by all their {operation}s, with what comes seldom; other \
                 values are of typical windows, and verdicts hold for both."
            )
        });
        let budget = budget::end(record);
        let budget = budget.map_or_else(String::new, |end| {
            format!(" The budget is judged on the {end}.")
        });
        let read = format!(
            "Differences are on the same server, with 95 % intervals.{total} Compare probes within one run: runs \
             differ by more. Margins for same: {}.{budget}",
            margins.collect::<Vec<_>>().join("; ")
        );
        let sources = record.machine.programs.as_deref().filter(|_| all);
        let sources = sources.map(|sources| format!("CPU time of {}.", line(sources)));
        noise.into_iter().chain([read]).chain(sources).collect()
    }

    /// Difference that a probe without effect would show; of several states, in the noisiest one.
    fn noise(&self) -> Option<String> {
        let spread = &self.states.record.spread;
        let reaches = self.states.all.iter().filter_map(|state| {
            let reach = spread.nothing.get(&state.off?.name)?;
            Some((*reach, state))
        });
        let Some((reach, state)) = reaches.max_by(|one, other| one.0.total_cmp(&other.0)) else {
            // Records of older versions have another statistic.
            let [low, high] = spread.noise?;
            let (_, interval) = number::change(0.0, Some([low, high].map(|end| end / 100.0)));
            return Some(format!(
                "No probe against no probe in this run: {interval} %, each window against the one before."
            ));
        };
        let subject = match self.state_name(state).as_str() {
            "" => "A probe".to_owned(),
            name => format!("In the noisiest state ({name}), a probe"),
        };
        Some(format!(
            "{subject} that does nothing would read between −{0} and +{0} in 19 of 20 such runs. (Half of the \
             windows without a probe against the other half, drawn at random.)",
            number::percent(reach / 100.0)
        ))
    }

    /// Difference of a case from another in a quantity.
    fn change(
        &self,
        quantity: &Quantity<'a>,
        case: &CaseRecord,
        baseline: Option<&CaseRecord>,
    ) -> Option<ChangeText<'a>> {
        quantity.change(&self.states, &case.name, &baseline?.name)
    }

    /// CPU time and each rate along `over`, for each set of states that differ in it alone.
    fn along(&self, over: &str) -> Vec<FactorSlice<'_, 'a>> {
        let curves = self.states.curves_over(over);
        let several = curves.len() > 1;
        let rates = || self.metrics.iter().filter(|one| one.is_throughput());
        let along = curves.into_iter().flat_map(|states| {
            let quantities = std::iter::once(&self.headline).chain(rates());
            quantities.map(move |quantity| FactorSlice {
                quantity,
                scale: quantity.scale(states.iter().flat_map(|state| state.cases())),
                apart: if several {
                    format!(", {}", factor_list(states[0].apart(over)))
                } else {
                    String::new()
                },
                states: states.clone(),
            })
        });
        along.collect()
    }

    /// `size 4, load open`; empty where there is one state alone.
    fn state_name(&self, state: &State<'a>) -> String {
        match self.states.all.len() {
            1 => String::new(),
            _ => factor_list(state.apart("")),
        }
    }

    /// Title of a table of a state.
    pub fn title(&self, what: &str, state: &State<'a>) -> String {
        match self.state_name(state).as_str() {
            "" => what.to_owned(),
            name => format!("{what}, {name}"),
        }
    }
}

/// A value in states that differ in one factor alone.
struct FactorSlice<'o, 'a> {
    quantity: &'o Quantity<'a>,
    scale: Scale,
    states: Vec<&'o State<'a>>,
    /// Suffix of a title: the other factors of the states; empty if there is one set of states.
    apart: String,
}

/// `size 4, load open`.
pub(crate) fn factor_list<'s>(values: impl Iterator<Item = (&'s str, &'s str)>) -> String {
    let factors: Vec<String> = values
        .map(|(factor, value)| line(&format!("{factor} {value}")))
        .collect();
    factors.join(", ")
}
