//! Finds what leads to events of a program, among the menu of stimuli.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    time::Instant,
};

use anyhow::{Context as _, Result};
use bpfcost_bpf::{
    hook::{HookKind, HookedObject},
    stats::StatsOn,
};
use bpfcost_stimulus::{Context, Stimulus};

use super::{FEWEST_EVENTS, Inner, OPERATIONS, attached::AttachedPrograms, menu::all};
use bpfcost_program::StimulusSource;

/// Operations by which a stimulus is tried.
const TRIED: usize = 5;

/// Stimuli that are traced at most before one is chosen for a program.
const MOST_TRACED: usize = 8;

/// Traces of each of them at most.
const TRACES: usize = 3;

/// The stimulus that iterators have: they are read.
pub(super) const READ: &str = "read-iterator";

/// Rank of a stimulus for a program: the lowest is best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// True if what it is for fails: most programs are for what succeeds.
    fails: bool,
    /// Instructions of an event, to a power of two: so that what differs from boot to boot does not decide.
    magnitude: u32,
    /// Place in the menu.
    place: usize,
}

/// The stimuli that were tried with programs that belong together.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    /// By program.
    ranks: BTreeMap<String, BTreeSet<Rank>>,
    tried: usize,
    /// Reason why the last one that could not be tried could not.
    unavailable: String,
}

/// Chooses the stimulus of a program that is attached. Returns why there is none.
pub(super) fn choose(
    inner: &Inner,
    attached: &mut AttachedPrograms,
    program: &str,
) -> Result<Option<String>> {
    let is_iterator = inner
        .hooks
        .iter()
        .flatten()
        .any(|hook| hook.program == program && hook.kind == HookKind::Iter);
    if is_iterator || matches!(&inner.subject.stimulus, Some(StimulusSource::Command(_))) {
        return Ok(None);
    }
    if inner.chosen.borrow().contains_key(program) {
        return Ok(None);
    }
    let named = match &inner.subject.stimulus {
        Some(StimulusSource::Menu(name)) => Some(name.as_str()),
        _ => None,
    };
    let known = inner.tried.borrow().get(attached.key()).cloned();
    let tried = match known {
        Some(tried) => tried,
        None => {
            let tried = try_all(attached, named)?;
            let mut all = inner.tried.borrow_mut();
            all.insert(attached.key().clone(), tried.clone());
            tried
        }
    };
    if let Some(ranks) = tried.ranks.get(program) {
        let stimulus = traceable(inner, attached, program, ranks)?;
        let mut chosen = inner.chosen.borrow_mut();
        chosen.insert(program.to_owned(), stimulus.name.to_owned());
        return Ok(None);
    }
    let Tried {
        tried, unavailable, ..
    } = tried;
    Ok(Some(match named {
        Some(_) if tried == 0 => unavailable,
        Some(named) => format!(
            "the stimulus {named} does not lead to {program}\n  Let one be found (omit --stimulus), or make events by a \
             command: --stimulus 'COMMAND'"
        ),
        None => format!(
            "none of {tried} stimuli leads to {program}\n  Make events by a command: --stimulus 'COMMAND'"
        ),
    }))
}

/// The first of these stimuli that leads to as many events in two traces, one after the other, and to as many by each
/// operation. The account does not show that: it has what the kernel does a while after an operation too, and events of other
/// causes. If none does, the first that leads to enough of them.
fn traceable(
    inner: &Inner,
    attached: &mut AttachedPrograms,
    program: &str,
    ranks: &BTreeSet<Rank>,
) -> Result<&'static Stimulus> {
    let stimulus = |rank: &Rank| all().nth(rank.place).context("it is in the menu");
    let tracer = inner.tracer.as_deref();
    let tracer = tracer.context("nothing traces instructions here")?;
    let place = attached.place(program)?;
    let mut enough = None;
    for rank in ranks.iter().take(MOST_TRACED) {
        let stimulus = stimulus(rank)?;
        let Ok(mut prepared) = stimulus.prepare(&context()?) else {
            continue;
        };
        let mut events = || {
            let mut operate = |_: &HookedObject| Ok(prepared.operate()?);
            let trace = attached.trace(tracer, program, stimulus.name, OPERATIONS, &mut operate)?;
            let traced = &trace.programs[place];
            let is_known = traced.unexplained == 0 && traced.events.len() >= FEWEST_EVENTS;
            anyhow::Ok(is_known.then_some(traced.events.len() as u64))
        };
        let mut last = None;
        for _ in 0..TRACES {
            let Some(seen) = events()? else { break };
            if last == Some(seen) && seen % OPERATIONS == 0 {
                return Ok(stimulus);
            }
            last = Some(seen);
            enough.get_or_insert(stimulus);
        }
    }
    match enough {
        Some(stimulus) => Ok(stimulus),
        None => stimulus(ranks.first().context("one was tried")?),
    }
}

/// Tries all stimuli, or the one of this name.
fn try_all(attached: &mut AttachedPrograms, named: Option<&str>) -> Result<Tried> {
    let context = context()?;
    let mut tried = Tried::default();
    // Events of the account itself. The first time differs.
    counted(attached, 1, &mut || Ok(()))?;
    let asking = counted(attached, 1, &mut || Ok(()))?;
    let wanted = |(_, one): &(usize, &Stimulus)| named.is_none_or(|named| named == one.name);
    for (place, stimulus) in all().enumerate().filter(wanted) {
        let mut prepared = match stimulus.prepare(&context) {
            Ok(prepared) => prepared,
            Err(error) => {
                tried.unavailable = format!("{}: {error}", stimulus.name);
                continue;
            }
        };
        tried.tried += 1;
        attached.object.drain()?;
        // The clock counts instructions, and leaps where all sleep.
        let mut instructions = u128::MAX;
        let mut is_done = true;
        let mut operate = || {
            let begun = Instant::now();
            is_done &= prepared.operate().is_ok();
            instructions = instructions.min(begun.elapsed().as_nanos());
            Ok(())
        };
        operate()?;
        let mut events = |operations| {
            let runs = counted(attached, operations, &mut operate)?;
            let own = |program: &String| asking.get(program).copied().unwrap_or_default();
            let of_operations = runs.into_iter().map(|(program, runs)| {
                let own = own(&program);
                (program, runs.saturating_sub(own))
            });
            anyhow::Ok(BTreeMap::from_iter(of_operations))
        };
        // One right after the other, as they are traced: what the kernel does a while after an operation, it may do once for
        // several. To count is dear, as it changes the kernel's code twice: most stimuli lead to none of the programs.
        let in_a_row = events(TRIED)?;
        let is_led_to = |runs: &u64| *runs >= TRIED as u64;
        if !in_a_row.values().any(is_led_to) {
            continue;
        }
        let alone: Result<Vec<_>> = (0..TRIED).map(|_| events(1)).collect();
        let alone = alone?;
        if !is_done {
            continue;
        }
        for (program, _) in in_a_row.iter().filter(|(_, runs)| is_led_to(runs)) {
            let of = |runs: &BTreeMap<String, u64>| runs.get(program).copied().unwrap_or_default();
            // Events of each operation: those of some may be of something else.
            let fewest = alone.iter().map(of).min().unwrap_or_default();
            let Some(each) = instructions.checked_div(u128::from(fewest)) else {
                continue;
            };
            let rank = Rank {
                fails: stimulus.fails,
                magnitude: each.max(1).ilog2(),
                place,
            };
            tried.ranks.entry(program.clone()).or_default().insert(rank);
        }
    }
    Ok(tried)
}

/// Events during so many operations. The kernel counts runs only meanwhile: asking for their numbers leads to events too, and
/// so does what it does later.
fn counted(
    attached: &AttachedPrograms,
    operations: usize,
    operate: &mut dyn FnMut() -> Result<()>,
) -> Result<BTreeMap<String, u64>> {
    let before = attached.object.runs()?;
    let stats = StatsOn::start()?;
    for _ in 0..operations {
        operate()?;
    }
    drop(stats);
    let after = attached.object.runs()?;
    let since = |(program, runs): (String, u64)| {
        let earlier = before.get(&program).copied().unwrap_or_default();
        (program, runs - earlier)
    };
    Ok(after.into_iter().map(since).collect())
}

/// Folder for the files of stimuli.
pub(super) fn context() -> Result<Context> {
    let folder = env::temp_dir();
    fs::create_dir_all(&folder).context("there is no folder for temporary files")?;
    Ok(Context::new(folder))
}
