//! Finds what leads to events of a program, among the menu of stimuli.

use std::{collections::BTreeMap, env, fs, time::Instant};

use anyhow::{Context as _, Result};
use bpfcost_bpf::{hook::HookKind, stats::StatsOn};
use bpfcost_stimulus::{Context, Stimulus};

use super::{Inner, attached::AttachedPrograms, menu::all};
use bpfcost_program::StimulusSource;

/// Operations by which a stimulus is tried.
const TRIED: usize = 5;

/// The stimulus that iterators have: they are read.
pub(super) const READ: &str = "read-iterator";

/// Rank of a stimulus for a program: the lowest is best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// True if operations led to different numbers of events.
    is_uneven: bool,
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
    best: BTreeMap<String, Rank>,
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
    if let Some(best) = tried.best.get(program) {
        let stimulus = all().nth(best.place).context("it is in the menu")?;
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
        let mut seen = Vec::new();
        let mut is_done = true;
        let mut operate = || {
            let begun = Instant::now();
            is_done &= prepared.operate().is_ok();
            instructions = instructions.min(begun.elapsed().as_nanos());
            Ok(())
        };
        for _ in 0..TRIED {
            seen.push(counted(attached, 1, &mut operate)?);
        }
        // And one right after the other, as they are traced: what the kernel does a while after an operation, it may do once
        // for several.
        let in_a_row = counted(attached, TRIED, &mut operate)?;
        if !is_done {
            continue;
        }
        for program in attached.key().1.clone() {
            let own = asking.get(&program).copied().unwrap_or_default();
            let of = |runs: &BTreeMap<String, u64>| {
                runs.get(&program)
                    .map_or(0, |runs| runs.saturating_sub(own))
            };
            let events: Vec<u64> = seen.iter().map(of).collect();
            let row = of(&in_a_row);
            // Events of each operation: those of some may be of something else.
            if events.contains(&0) || row < TRIED as u64 {
                continue;
            }
            let rank = Rank {
                is_uneven: row != events[0] * TRIED as u64
                    || events.iter().any(|&one| one != events[0]),
                fails: stimulus.fails,
                magnitude: (instructions / u128::from(events[0])).max(1).ilog2(),
                place,
            };
            let best = tried.best.entry(program).or_insert_with(|| rank.clone());
            if rank < *best {
                *best = rank;
            }
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

/// Folder for the files of stimuli, and a command that they start.
pub(super) fn context() -> Result<Context> {
    let folder = env::temp_dir();
    fs::create_dir_all(&folder).context("there is no folder for temporary files")?;
    let mut context = Context::new(folder);
    context.exec = vec!["/proc/self/exe".into(), "--version".into()];
    Ok(context)
}
