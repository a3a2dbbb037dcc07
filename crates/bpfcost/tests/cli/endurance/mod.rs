//! SIGKILL at random moments of every way to measure: nothing of the run is left on the machine, and its journal holds every
//! trial that had ended. `make endurance` runs the long form.

mod bystander;
mod group;
mod machine;
mod moment;
mod subject;

use std::{
    collections::BTreeMap,
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bpfcost_process::wait_until;
use rand::{RngExt as _, SeedableRng as _, seq::SliceRandom as _};
use rand_pcg::Pcg64;

use self::{
    bystander::Bystander,
    group::Group,
    machine::{Machine, is_swept_later},
    moment::{Moment, Part},
    subject::Subject,
};
use crate::{
    guests,
    journals::{assert_holds, record, trials},
    require,
    running::{Held, Running},
    tool::{STATE, Said, Tool},
};

/// No wait for something to be gone is longer.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Kills, where `BPFCOST_KILLS` names no other number.
const KILLS: usize = 50;
/// Time in which a run that is continued may come to its own end, in the long form and in the short one.
const LONG: Duration = Duration::from_secs(15);
const SHORT: Duration = Duration::from_secs(1);

/// Kills, and what they hit.
struct Endurance {
    random: Pcg64,
    bystander: Bystander,
    /// Time for which a run that is continued may go on.
    time: Duration,
    parts: BTreeMap<Part, usize>,
    names: BTreeMap<String, usize>,
    /// Kills of runs that were continued already.
    again: usize,
    /// Continued runs that came to their own end.
    whole: usize,
}

/// A home with a run in a control group, on a machine as it was before.
struct Scene {
    tool: Tool,
    group: Group,
    machine: Machine,
    /// The files that are there from the start.
    names: Vec<String>,
}

/// A number that a variable of the environment sets.
fn set(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {text}")),
    )
}

/// Whole lines of a journal.
fn whole(journal: &str) -> &str {
    journal.rfind('\n').map_or("", |end| &journal[..=end])
}

fn count(journal: &str) -> usize {
    journal.matches("\n{\"trial\"").count()
}

impl Scene {
    fn journal(&self) -> Option<String> {
        fs::read_to_string(self.tool.path("x.json.journal")).ok()
    }

    fn start(&self, words: &[String]) -> Running {
        Running::spawn(&self.tool, &mut self.group.command(&self.tool, words))
    }

    /// Trials that a guest has sent.
    fn sent(&self) -> usize {
        let folders = fs::read_dir(self.tool.path("scratch"))
            .into_iter()
            .flatten();
        let streams = folders.flatten().map(|entry| entry.path().join("stream"));
        let texts = streams.filter_map(|path| fs::read_to_string(path).ok());
        texts
            .map(|text| text.matches("{\"event\":{\"trial\"").count())
            .sum()
    }

    /// Nothing of the run is left on the machine, but for events that the next run sweeps, and no file but its record and
    /// its journal.
    #[track_caller]
    fn assert_nothing_left(&self, but: impl Fn(&str) -> bool) {
        self.group.assert_empty();
        self.machine.assert_nothing_new(but);
        let files = || {
            let known = |name: &String| {
                self.names.contains(name) || ["x.json", "x.json.journal"].contains(&&**name)
            };
            let mut left = self.tool.names();
            left.retain(|name| !known(name));
            for folder in ["scratch", &format!("{STATE}/bpfcost/restore")] {
                let entries = fs::read_dir(self.tool.path(folder)).into_iter().flatten();
                left.extend(
                    entries
                        .flatten()
                        .map(|entry| entry.path().display().to_string()),
                );
            }
            left
        };
        let none_is_left = wait_until(TIMEOUT, POLL_INTERVAL, || files().is_empty());
        assert!(none_is_left, "files are left: {:#?}", files());
    }
}

impl Endurance {
    fn new(time: Duration) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("a time after 1970").as_secs();
        let seed = set("BPFCOST_KILLS_SEED").unwrap_or(now);
        println!("BPFCOST_KILLS_SEED={seed}");
        Endurance {
            random: Pcg64::seed_from_u64(seed),
            bystander: Bystander::start(),
            time,
            parts: BTreeMap::new(),
            names: BTreeMap::new(),
            again: 0,
            whole: 0,
        }
    }

    /// Kills a run of it, looks for what is left, and continues the run; `false` where it can't run here, which is printed.
    fn strike(&mut self, subject: &Subject) -> bool {
        let Some(group) = Group::make() else {
            require::skip("no control group of version 2 may be made here");
            return false;
        };
        let tool = Tool::new();
        let words = subject.call(&tool, &mut self.random, &self.bystander);
        println!("bpfcost {}", words.join(" "));
        // Makes the folder of temporary files.
        let _ = group.command(&tool, &words);
        let scene = Scene {
            names: tool.names(),
            tool,
            group,
            machine: Machine::now(),
        };
        let mut haste = 1.0;
        let journal = loop {
            let moment = Moment::draw(&mut self.random, subject.is_guest(), haste);
            let mut run = scene.start(&words);
            if moment.comes(&mut run) {
                let journal = self.kill(&scene, run, "");
                let part = moment.part(&journal);
                println!("  in {part:?}, {moment:?}, {} trials", count(&journal));
                *self.parts.entry(part).or_default() += 1;
                break journal;
            }
            // It was over before.
            let said = run.end();
            match said.code {
                Some(0 | 3 | 130) => {}
                Some(4) => {
                    require::skip(format!("{} can't run here: {}", subject.name, said.err));
                    return false;
                }
                _ => panic!("{said:?}"),
            }
            for name in ["x.json", "x.json.journal"] {
                let _ = fs::remove_file(scene.tool.path(name));
            }
            haste /= 2.0;
        };
        *self.names.entry(subject.name.clone()).or_default() += 1;
        self.resume(&scene, journal);
        true
    }

    /// Kills a run that left this journal before, looks for what is left, and returns its journal.
    #[track_caller]
    fn kill(&mut self, scene: &Scene, mut run: Running, earlier: &str) -> String {
        let processes = scene.group.processes();
        let held = Held::by(processes.iter().copied());
        let (sent, before) = (scene.sent(), run.journal());
        run.kill();
        scene.group.assert_empty();
        self.bystander.assert_unharmed();
        // Not earlier: a list of all maps takes a reference to each. Tables of programs whose last owner ended meanwhile
        // were then never freed by Linux 6.18: none after 20 kills without lists, 145 after 20 beside a loop of lists.
        held.assert_freed();
        scene.assert_nothing_left(is_swept_later);
        println!(
            "  killed with {} processes, {} programs, {} maps",
            processes.len(),
            held.programs.len(),
            held.maps.len()
        );
        let Some(journal) = scene.journal() else {
            // It had just ended, or not yet begun.
            let kept = fs::read_to_string(scene.tool.path("x.json"));
            if let Ok(kept) = kept {
                assert_holds(&record(&kept), &trials(&before));
            } else {
                assert_eq!(before, "", "the journal is lost");
            }
            return String::new();
        };
        assert!(
            journal.starts_with(whole(&before)),
            "{journal}\nwas\n{before}"
        );
        assert!(
            journal.starts_with(whole(earlier)),
            "{journal}\nwas\n{earlier}"
        );
        let kept = count(&journal) - count(earlier);
        assert!(
            sent <= kept,
            "{sent} trials were sent by the guest, {kept} are kept"
        );
        journal
    }

    /// Continues a killed run, sometimes after another kill. To its end where that is near; otherwise until Ctrl-C.
    fn resume(&mut self, scene: &Scene, mut journal: String) {
        if whole(&journal).is_empty() {
            return;
        }
        let words = ["run", "--resume", "x.json"].map(str::to_owned);
        // Of the killed part, if it was interrupted before.
        let _ = fs::remove_file(scene.tool.path("x.json"));
        let mut run = scene.start(&words);
        if self.random.random_bool(0.25) {
            let wait = Duration::from_secs_f64(self.random.random::<f64>() * 2.0);
            if !run.ends_within(wait) {
                println!("  and once more, {wait:?} after it was resumed");
                journal = self.kill(scene, run, &journal);
                self.again += 1;
                if scene.journal().is_none() {
                    return;
                }
                run = scene.start(&words);
            }
        }
        let before = count(&journal);
        let over = match self.random.random_range(0..2) {
            0 => run.ends_within(self.time),
            _ => !run.until_or_end(|journal| count(journal) > before),
        };
        if !over {
            run.signal("INT");
        }
        self.assert_continued(scene, &run.end(), &journal);
    }

    /// A continued run has ended so, and has kept what this journal held.
    #[track_caller]
    fn assert_continued(&mut self, scene: &Scene, said: &Said, before: &str) {
        println!("  continued: exit code {:?}", said.code);
        assert!(matches!(said.code, Some(0 | 3 | 130)), "{said:?}");
        let is_whole = said.code != Some(130);
        self.whole += usize::from(is_whole);
        match scene.journal() {
            Some(now) => assert!(now.starts_with(whole(before)), "{now}\nwas\n{before}"),
            None => assert!(is_whole, "the journal is lost: {said:?}"),
        }
        match fs::read_to_string(scene.tool.path("x.json")) {
            Ok(kept) => assert_holds(&record(&kept), &trials(before)),
            Err(_) => assert!(said.err.contains("nothing was measured"), "{said:?}"),
        }
        scene.assert_nothing_left(|_| false);
        self.bystander.assert_unharmed();
    }

    fn report(&self) {
        println!("kills: {:?}", self.parts);
        println!(
            "and {} of runs that were continued; {} came to their own end",
            self.again, self.whole
        );
        println!("{:#?}", self.names);
    }
}

#[test]
fn a_few_kills() {
    if !require::host() {
        return;
    }
    let mut endurance = Endurance::new(SHORT);
    let cheap = ["ladder", "xdp-lb", "pool"];
    for subject in subject::experiments().into_iter().flatten() {
        if cheap.contains(&&*subject.name) {
            endurance.strike(&subject);
        }
    }
    endurance.report();
}

#[test]
#[ignore = "takes 20 minutes: make endurance"]
fn many_kills() {
    if !require::host() {
        return;
    }
    let mut endurance = Endurance::new(LONG);
    let mut subjects = subject::others();
    subjects.extend(guests::kernel().into_iter().flat_map(subject::guests));
    let mut lacking = Vec::new();
    for experiment in subject::experiments() {
        match experiment {
            Ok(subject) => subjects.push(subject),
            Err(why) => lacking.push(why),
        }
    }
    subjects.shuffle(&mut endurance.random);
    let kills = set("BPFCOST_KILLS").map_or(KILLS, |kills| kills as usize);
    let (mut done, mut failed) = (0, Vec::new());
    while done < kills && !subjects.is_empty() {
        subjects.retain(|subject| {
            if done >= kills {
                return true;
            }
            // One failure must not hide those that would come after it.
            let struck = catch_unwind(AssertUnwindSafe(|| endurance.strike(subject)));
            if struck.is_err() {
                failed.push(subject.name.clone());
            }
            let able = struck.unwrap_or(true);
            done += usize::from(able);
            able
        });
    }
    endurance.report();
    println!("not on this kernel: {lacking:#?}");
    assert!(failed.is_empty(), "failed: {failed:?}");
    assert!(done >= kills, "{done} of {kills} kills");
}
