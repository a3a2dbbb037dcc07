//! Other ways through a program than those that its stimulus leads to.

use anyhow::{Context as _, Result};
use bpfcost_model::OtherWay;
use bpfcost_program::ProgramTrace;

use super::{
    Inner, Work,
    attached::AttachedPrograms,
    choice,
    facts::{Lines, reached_lines},
};

/// Stimuli that are traced at most, beside the first of those that fail.
const MOST_TRACED: usize = 3;

/// The ways of a program by stimuli that lead to it, and to lines that neither `traced` nor those before them reach.
pub(super) fn other_ways(
    inner: &Inner,
    attached: &mut AttachedPrograms,
    work: &Work,
    traced: &ProgramTrace,
    lines: &Lines,
) -> Result<Vec<OtherWay>> {
    let tracer = inner.tracer.as_deref();
    let tracer = tracer.context("nothing traces instructions here")?;
    let mut reached = reached_lines(lines, traced);
    let mut ways = Vec::new();
    for stimulus in choice::others(inner, attached, work, MOST_TRACED)? {
        let Ok(mut prepared) = stimulus.prepare(&choice::context()?) else {
            continue;
        };
        let program = &work.program;
        let trace = choice::known_trace(attached, tracer, program, stimulus, &mut prepared)?;
        let Some(other) = trace else { continue };
        let before = reached.len();
        reached.extend(reached_lines(lines, &other));
        let dearest = other.events.iter().max_by_key(|event| event.total());
        if let Some(dearest) = dearest.filter(|_| reached.len() > before) {
            ways.push(OtherWay {
                stimulus: stimulus.name.to_owned(),
                dispatch: dearest.dispatch,
                body: dearest.body,
                helpers: dearest.helpers,
                lines: reached.len() - before,
            });
        }
    }
    Ok(ways)
}
