//! The pools in two model checkers, and the checkers on pools with faults.
//!
//! loom goes through every interleaving of a few steps, and every value that a load may see by its ordering,
//! with at most so many preemptions. shuttle draws interleavings of more threads and steps at random, and
//! knows no orderings. Both run on every pool as it is, which must hold, and with every fault that its atomics
//! can have (`fault.rs`). Each must be caught, but for a short list of those that must not (`exemption.rs`).

mod exemption;
mod fault;
mod scene;
mod subject;
mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};

use exemption::Exemption;
use fault::{Fault, FaultKind};
use scene::Scene;
use shuttle::{
    MaxSteps,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};
use subject::{Subject, TheArray, TheFreelist, TheRings, Uncounted};
use world::{Loom, Shuttle};

/// Scenes for loom, from the quickest to the slowest, with the preemptions of each.
const SMALL: &[(Scene, Option<usize>)] = &[
    (scene(1, 1, &["-+", "-+"]), None),
    (scene(2, 1, &["-+", "-+"]), None),
    (scene(2, 1, &["--++", "-+"]), Some(3)),
    (scene(2, 2, &["-+-+", "-+"]), Some(3)),
    (scene(1, 1, &["-+", "-+", "-+"]), Some(1)),
    (scene(2, 1, &["-+", "-+", "-+"]), Some(1)),
    (scene(2, 1, &["-+", "-+-+", "-+"]), Some(1)),
];

/// The number of these scenes for the freelist: the others take it minutes.
const FREELIST: usize = 6;

/// Larger scenes, for shuttle alone.
const LARGE: &[Scene] = &[
    scene(2, 2, &["-+-+-+", "-+-+-+", "-+-+-+", "-+-+-+"]),
    scene(4, 2, &["--+-++-+", "-+-+-+-+", "--++--++", "---+++"]),
    scene(
        8,
        4,
        &["--++-+", "-+--++", "-+-+-+", "--+-++", "-+-+", "---+++"],
    ),
];

/// Interleavings that shuttle draws of each, by each of two ways to draw them.
const DRAWN: usize = 1_500;
const SEED: u64 = 7;
/// Changes of priority that a fault may need (Burckhardt and others, 2010).
const DEPTH: usize = 4;

/// Steps of a thread that is stuck: no scene has a tenth of them.
const STUCK: usize = 20_000;

/// Messages by which a caught fault shows itself: loom's for a data race, the tests' own, the checkers' for one that
/// never ends, and those of the freelist, whose counts are wrong then.
const SYMPTOMS: [&str; 9] = [
    "Causality violation",
    "had two owners",
    "came out twice",
    "were lost",
    "was handed out twice",
    "was returned twice",
    "exceeded max_steps",
    "exceeded maximum number of branches",
    "attempt to add with overflow",
];

/// Held by the test that runs. The checkers map and unmap a stack for each thread of each interleaving: two tests at once in
/// one process take twice the CPU time, and longer than one after the other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    // Two tests panic, as they must.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn scene(objects: usize, cpus: usize, threads: &'static [&'static str]) -> Scene {
    Scene {
        objects,
        cpus,
        threads,
    }
}

fn by_loom<S: Subject>((scene, preemptions): (Scene, Option<usize>)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || scene.play::<Loom, S>());
}

fn by_shuttle<S: Subject>(scene: Scene) {
    drawn_by::<S>(RandomScheduler::new_from_seed(SEED, DRAWN), scene);
    drawn_by::<S>(PctScheduler::new_from_seed(SEED, DEPTH, DRAWN), scene);
}

fn drawn_by<S: Subject>(scheduler: impl Scheduler + 'static, scene: Scene) {
    let mut config = shuttle::Config::new();
    // That it takes all orderings for sequentially consistent is known here.
    config.silence_warnings = true;
    config.max_steps = MaxSteps::FailAfter(STUCK);
    shuttle::Runner::new(scheduler, config).run(move || scene.play::<Shuttle, S>());
}

/// Puts a pool through all scenes, then again with each of the faults that it could have had there. Of a
/// fault that is asked for, one scene must show it. None may show those whose orderings are kept for other
/// reasons: all at once, which allows whatever each of them does.
fn check<T: Copy>(
    scenes: &[T],
    play: impl Fn(T),
    asked: impl Fn(&Fault) -> bool,
    exemptions: &[Exemption],
) {
    let mut faults = fault::possible(|| scenes.iter().for_each(|scene| play(*scene)));
    faults.retain(asked);
    assert!(!faults.is_empty(), "it has no atomics");
    let mut stronger = Vec::new();
    for exemption in exemptions {
        let exempt: Vec<_> = faults.iter().filter(|fault| exemption.is(fault)).collect();
        assert!(
            !exempt.is_empty(),
            "not in the source any more: {exemption:?}"
        );
        for fault in exempt {
            println!("{fault}: kept, for the kernel has {}", exemption.kernel);
            stronger.push(*fault);
        }
    }
    faults.retain(|fault| !stronger.contains(fault));
    let shown = |faults: &[Fault]| {
        let mut scenes = scenes.iter();
        scenes.find_map(|scene| fault::caught(faults, || play(*scene)))
    };
    let missed = |fault: &Fault| {
        let Some(text) = shown(&[*fault]) else {
            return true;
        };
        let known = SYMPTOMS.iter().find(|known| text.contains(**known));
        let known = known.unwrap_or_else(|| panic!("{fault} ends otherwise: {text}"));
        println!("{fault}: {known}");
        false
    };
    let missed: Vec<_> = faults.iter().filter(|fault| missed(fault)).collect();
    assert!(missed.is_empty(), "not caught: {missed:#?}");
    if let Some(text) = shown(&stronger) {
        panic!("one of these is needed, and is not to be on the list: {stronger:#?}: {text}");
    }
}

/// loom sees orderings as well as interleavings: it must catch every fault but these.
fn in_loom<S: Subject>(scenes: usize, exemptions: &[Exemption]) {
    let _alone = alone();
    check(&SMALL[..scenes], by_loom::<S>, |_| true, exemptions);
}

/// Checks interleavings alone, by torn steps: shuttle does not vary the order of memory.
fn in_shuttle<S: Subject>() {
    let _alone = alone();
    let torn = |fault: &Fault| fault.kind == FaultKind::Torn;
    check(LARGE, by_shuttle::<S>, torn, &[]);
}

#[test]
fn freelist_in_loom() {
    in_loom::<TheFreelist>(FREELIST, exemption::FREELIST);
}

#[test]
fn freelist_in_shuttle() {
    in_shuttle::<TheFreelist>();
}

#[test]
fn array_in_loom() {
    in_loom::<TheArray>(SMALL.len(), &[]);
}

#[test]
fn array_in_shuttle() {
    in_shuttle::<TheArray>();
}

#[test]
fn percpu_in_loom() {
    in_loom::<TheRings>(SMALL.len(), &[]);
}

#[test]
fn percpu_in_shuttle() {
    in_shuttle::<TheRings>();
}

/// ABA: the top is the same as before, and what is below it is not.
#[test]
#[should_panic(expected = "lost")]
fn a_list_without_counts_loses_objects_in_loom() {
    let _alone = alone();
    SMALL.iter().for_each(|scene| by_loom::<Uncounted>(*scene));
}

#[test]
#[should_panic(expected = "twice")]
fn a_list_without_counts_hands_out_twice_in_shuttle() {
    let _alone = alone();
    LARGE
        .iter()
        .for_each(|scene| by_shuttle::<Uncounted>(*scene));
}
