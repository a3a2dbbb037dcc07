//! Finds what leads to events of a program, among the menu of stimuli.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    time::Instant,
};

use anyhow::{Context as _, Result};
use bpfcost_bpf::{
    hook::{Hook, HookKind, HookedObject},
    stats::StatsOn,
};
use bpfcost_stimulus::{Context, Prepared, Stimulus};

use super::{FEWEST_EVENTS, Inner, OPERATIONS, Work, attached::AttachedPrograms, menu::all};
use bpfcost_program::{InstructionTracer, ProgramTrace, StimulusSource};

/// Operations by which a stimulus is tried.
const TRIED: u64 = 5;

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
    /// Ranks by program.
    ranks: BTreeMap<String, BTreeSet<Rank>>,
    tried: usize,
    /// Those that could not be tried, each with the reason.
    unavailable: Vec<String>,
}

/// Programs that are attached together, as [`AttachedPrograms::key`] has them, and the place of the stimulus that was named.
pub(super) type TriedKey = ((usize, Vec<String>), Option<usize>);

/// Sees that the stimulus of a work leads to its program, which is attached, or finds one. Returns why there is none.
pub(super) fn choose(
    inner: &Inner,
    attached: &mut AttachedPrograms,
    work: &Work,
) -> Result<Option<String>> {
    let program = work.program.as_str();
    let hook = inner.hook(work).context("a case has a program")?;
    if hook.kind == HookKind::Iter {
        return Ok(None);
    }
    let named = match inner.source(work) {
        Some(StimulusSource::Command(_)) => return Ok(None),
        Some(StimulusSource::Menu(name)) => Some(name.as_str()),
        None if inner.chosen.borrow().contains_key(program) => return Ok(None),
        None => None,
    };
    let key = (attached.key().clone(), work.stimulus);
    let known = inner.tried.borrow().get(&key).cloned();
    let tried = match known {
        Some(tried) => tried,
        None => {
            let tried = try_all(attached, named)?;
            let mut all = inner.tried.borrow_mut();
            all.insert(key, tried.clone());
            tried
        }
    };
    if let Some(ranks) = tried.ranks.get(program) {
        if named.is_some() {
            return Ok(None);
        }
        let stimulus = traceable(inner, attached, program, ranks)?;
        let mut chosen = inner.chosen.borrow_mut();
        chosen.insert(program.to_owned(), stimulus.name.to_owned());
        return Ok(None);
    }
    let Tried {
        tried, unavailable, ..
    } = tried;
    Ok(Some(match named {
        Some(_) if tried == 0 => unavailable.join("\n"),
        Some(named) => format!(
            "the stimulus {named} does not lead to {program}\n  Let one be found (omit --stimulus), or make events by a \
             command: --stimulus 'COMMAND'"
        ),
        None => format!(
            "none of {tried} stimuli leads to {program}{}{}\n  Make events by a command: --stimulus 'COMMAND'",
            match unavailable.as_slice() {
                [] => String::new(),
                [first, ..] => format!(", and {} others fail ({first})", unavailable.len()),
            },
            known_reason(hook)
        ),
    }))
}

/// The kernel's own scheduler is back.
pub(super) const ENDED: &str =
    "the kernel has ended this scheduler, as it does with one that fails or lets a task wait";

/// Reasons why nothing may lead to a program, behind a semicolon; nothing where there is none that is known.
fn known_reason(hook: &Hook) -> String {
    let reason = match hook.kind {
        _ if hook.has_lost_its_scheduler() => ENDED,
        HookKind::StructOps => {
            "some functions of structs are called only as these are attached and detached, or with several CPUs"
        }
        _ => return String::new(),
    };
    format!("; {reason}")
}

/// Stimuli that lead to a program beside the one that was found for it: so many of the best, and the first that fails.
pub(super) fn others(
    inner: &Inner,
    attached: &AttachedPrograms,
    work: &Work,
    most: usize,
) -> Result<Vec<&'static Stimulus>> {
    let tried = inner.tried.borrow();
    let chosen = inner.chosen.borrow();
    let chosen = chosen.get(&work.program);
    let ranks = tried.get(&(attached.key().clone(), work.stimulus));
    let ranks = ranks.and_then(|tried| tried.ranks.get(&work.program));
    let stimulus = |rank: &Rank| all().nth(rank.place).context("it is in the menu");
    let all: Result<Vec<_>> = ranks.into_iter().flatten().map(stimulus).collect();
    let mut others = all?;
    others.retain(|one| Some(one.name) != chosen.map(String::as_str));
    let fails = others.iter().skip(most).find(|one| one.fails).copied();
    others.truncate(most);
    Ok(others.into_iter().chain(fails).collect())
}

/// The first of these stimuli that leads to as many events in two traces, one after the other, and to as many by each
/// operation. The account does not show that: it has what the kernel does a while after an operation too, maybe after another,
/// and events of other causes. If none does, the first that leads to enough of them.
fn traceable(
    inner: &Inner,
    attached: &mut AttachedPrograms,
    program: &str,
    ranks: &BTreeSet<Rank>,
) -> Result<&'static Stimulus> {
    let stimulus = |rank: &Rank| all().nth(rank.place).context("it is in the menu");
    let first = stimulus(ranks.first().context("one was tried")?)?;
    if ranks.len() == 1 {
        return Ok(first);
    }
    let tracer = inner.tracer.as_deref();
    let tracer = tracer.context("nothing traces instructions here")?;
    let mut enough = None;
    for rank in ranks.iter().take(MOST_TRACED) {
        let stimulus = stimulus(rank)?;
        let Ok(mut prepared) = stimulus.prepare(&context()?) else {
            continue;
        };
        let mut events = || {
            let trace = known_trace(attached, tracer, program, stimulus, &mut prepared)?;
            anyhow::Ok(trace.map(|trace| trace.events.len() as u64))
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
    Ok(enough.unwrap_or(first))
}

/// A trace of a program's events by a stimulus; `None` where that fails, some events are not known, or they are too few.
pub(super) fn known_trace(
    attached: &mut AttachedPrograms,
    tracer: &dyn InstructionTracer,
    program: &str,
    stimulus: &Stimulus,
    prepared: &mut Prepared,
) -> Result<Option<ProgramTrace>> {
    let mut is_done = true;
    let mut operate = |_: &HookedObject| {
        is_done &= prepared.operate().is_ok();
        Ok(())
    };
    let trace = attached.trace(tracer, program, stimulus.name, OPERATIONS, &mut operate)?;
    let traced = trace.programs.into_iter().nth(attached.place(program)?);
    Ok(traced.filter(|traced| {
        is_done && traced.unexplained == 0 && traced.events.len() >= FEWEST_EVENTS
    }))
}

/// Tries all stimuli, or the one of this name. The kernel counts runs all the while: to switch that on or off changes its code,
/// which takes longer than all else.
fn try_all(attached: &mut AttachedPrograms, named: Option<&str>) -> Result<Tried> {
    let context = context()?;
    let mut tried = Tried::default();
    let _counting = StatsOn::start()?;
    // Events of the account itself. The first time differs.
    runs_of(attached, &mut || Ok(()))?;
    let asking = runs_of(attached, &mut || Ok(()))?;
    let wanted = |(_, one): &(usize, &Stimulus)| named.is_none_or(|named| named == one.name);
    for (place, stimulus) in all().enumerate().filter(wanted) {
        let mut prepared = match stimulus.prepare(&context) {
            Ok(prepared) => prepared,
            Err(error) => {
                let words = format!("{}: {error}", stimulus.name);
                tried.unavailable.push(words);
                continue;
            }
        };
        tried.tried += 1;
        attached.object.drain()?;
        // The clock counts instructions, and leaps where all sleep.
        let mut instructions = u128::MAX;
        let mut operate = || {
            let begun = Instant::now();
            let done = prepared.operate();
            instructions = instructions.min(begun.elapsed().as_nanos());
            done
        };
        let mut operations = || (0..TRIED).try_for_each(|_| operate());
        if operations().is_err() {
            continue;
        }
        // One that fails now is not fixed work.
        let Ok(runs) = runs_of(attached, &mut || Ok(operations()?)) else {
            continue;
        };
        for (program, runs) in runs {
            let own = asking.get(&program).copied().unwrap_or_default();
            let events = runs.saturating_sub(own) / TRIED;
            let Some(each) = instructions.checked_div(u128::from(events)) else {
                continue;
            };
            let rank = Rank {
                fails: stimulus.fails,
                magnitude: each.max(1).ilog2(),
                place,
            };
            tried.ranks.entry(program).or_default().insert(rank);
        }
    }
    Ok(tried)
}

/// Runs of each program during some work, with those of asking for their numbers.
fn runs_of(
    attached: &AttachedPrograms,
    work: &mut dyn FnMut() -> Result<()>,
) -> Result<BTreeMap<String, u64>> {
    let before = attached.object.runs()?;
    work()?;
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
    Ok(Context::new(folder).alone())
}
