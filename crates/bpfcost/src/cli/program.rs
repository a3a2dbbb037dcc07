//! `bpfcost program`: what a person's own BPF program costs per run. The command line becomes an experiment, and is
//! measured like every other one.

mod expected;
mod hooked;

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use bpfcost_bpf::{
    Error,
    hook::Hook,
    program::{ObjectFile, PacketContext, ProgramEntry, ProgramKind, Settings},
};

use super::{
    command,
    exit::{Exit, lacking, usage},
    flame,
    measurement::{self, Options},
    output::note,
    parse, place,
};
use crate::builtin::{hook::Hooks, program::Programs};
use bpfcost_measure::Plan;
use bpfcost_model::{Experiment, MIX, Role};
use bpfcost_program::{Expected, Input, LoaderCommand, OwnPrograms, inputs, maps, slots};
use bpfcost_record::Record;
use bpfcost_report::rate::EventLoad;
use bpfcost_target::Host;

/// Time your own BPF program per packet, unmodified
///
/// The program runs in a loop in the kernel, attached to nothing. What one run changes is undone before the next one:
/// head, tail, metadata and bytes of the packet, fields of an skb. Every run must return what the program returns when
/// it is run alone, and the last one must leave the same packet. Its maps are its own: nothing is pinned or shared.
/// XDP, tc and tcx, cgroup_skb, socket filters, raw tracepoints and syscall programs can be run like this.
///
/// On exact targets, all others are attached at their own hooks instead: kprobe, fentry, tracepoint, LSM, uprobe and so on. A
/// stimulus that leads to the hook is found, and the instructions of each event are counted: from the hook to the program
/// and back (dispatch), in the program, and in what it calls.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("cpus", |cpus| cpus.help("Run on this CPU, e.g. 3").long_help(None)),
    mut_arg("set", |set| set.value_name("NAME=VALUE").help(SET).long_help(None)),
    mut_arg("cases", |cases| cases.hide_short_help(true).help("Measure only matching cases, PROGRAM/PACKET [repeatable]")),
    mut_arg("seed", |seed| seed.help("Draw every order from this seed; the same seed repeats it")),
    after_help = "\
Examples:
  bpfcost program lb.bpf.o --input web.pcap             each packet of a capture
  bpfcost program lb.bpf.o --against main/lb.bpf.o      two builds in one run, with a verdict
  bpfcost program lb.bpf.o --on exact:6.12 --quick      instructions instead of nanoseconds, in a guest
  bpfcost program opensnoop.bpf.o --on exact:6.12       programs at hooks: instructions of an event"
)]
pub(super) struct Args {
    /// The compiled object
    #[arg(value_name = "FILE.bpf.o")]
    object: PathBuf,
    /// A program of it, by the name of its function [default: all that can be run] [repeatable]
    #[arg(long = "program", value_name = "NAME")]
    programs: Vec<String>,
    /// The type of programs whose sections name none: xdp, tc, cgroup_skb, socket, raw_tp or syscall
    ///
    /// Sections whose names begin with xdp, tc, classifier or socket need no option. Those that name a type keep theirs.
    #[arg(long = "type", value_name = "TYPE", value_parser = program_kind, hide_short_help = true)]
    kind: Option<ProgramKind>,
    /// A packet: FILE.pcap, hexadecimal digits or builtin:NAME [default: builtin:udp] [repeatable]
    ///
    /// Each packet of a capture is a case. Captures are in the classic pcap format, of an Ethernet link. A packet begins
    /// with its Ethernet header; cgroup_skb programs and socket filters get what follows it. Built in are udp (64 bytes),
    /// tcp (1,514 bytes) and syn6 (74 bytes). Raw tracepoints and syscall programs take their context: hexadecimal digits,
    /// or builtin:zeros (96 bytes), their default.
    #[arg(long = "input", value_name = "PACKET")]
    inputs: Vec<String>,
    /// Give packets more than bytes: mark=0x42,ifindex=2,gso_segs=3 [repeatable]
    ///
    /// An skb (tc, cgroup_skb, socket) takes mark, priority, ingress_ifindex, ifindex, cb[0] to cb[4], tstamp, wire_len,
    /// gso_segs, gso_size and hwtstamp; an XDP frame ingress_ifindex and rx_queue_index. Each packet gets them.
    #[arg(long = "context", value_name = "FIELD=VALUE", hide_short_help = true)]
    contexts: Vec<String>,
    /// Also measure all packets in turn, as PROGRAM/mix
    #[arg(long)]
    mix: bool,
    /// Compare with the same programs of this object, measured in the same run
    #[arg(long, value_name = "OLD.bpf.o")]
    against: Option<PathBuf>,
    /// With --against: fail if a program costs over this much more, beyond noise
    ///
    /// The exit code is then 1. On exact targets 0% finds one instruction more.
    #[arg(long, value_name = "PERCENT", value_parser = parse::share_or_none, allow_hyphen_values = true)]
    #[arg(requires = "against")]
    budget: Option<f64>,
    /// Fill a map from a file, or change its size: NAME=FILE.json or .csv, NAME:max_entries=N [repeatable]
    ///
    /// JSON is a list of entries as `bpftool map dump --json` prints it: keys and values are lists of bytes or numbers.
    /// CSV has an entry a line, KEY,VALUE: numbers, IP addresses, or bytes (0a 00 00 01).
    #[arg(long = "map", value_name = "NAME=FILE")]
    maps: Vec<String>,
    /// Put a program of the object into a program array, for tail calls: MAP[SLOT]=PROGRAM [repeatable]
    ///
    /// Programs that the object's source puts there need no option.
    #[arg(long, value_name = "SLOT", hide_short_help = true)]
    also: Vec<String>,
    /// Fill maps with a loader of your own: a command, which finds them pinned in the folder $BPFCOST_MAPS
    ///
    /// It is run after each load, before the program is; it must end by itself. It is started without a shell; use sh -c '…'
    /// if it needs one.
    #[arg(long, value_name = "COMMAND", hide_short_help = true)]
    setup: Option<String>,
    /// Check what each run does: MAP[KEY]=+N, or a recorded FILE [repeatable]
    ///
    /// A case whose runs do something else is invalid.
    /// MAP[KEY]=+N: each run adds N to that number; MAP[KEY]@8=+N: to the one at byte 8 of the value; VARIABLE=+N; MAP=+N: to
    /// the number of entries of a table. FILE: what programs return, leave and change, as --record-expected wrote it.
    #[arg(long = "expect", value_name = "WHAT")]
    expected: Vec<String>,
    /// Write what each program does with each packet to this file, for --expect
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    record_expected: Option<PathBuf>,
    /// With exact targets: also show which lines of the source the instructions are spent on
    ///
    /// A run of each program is traced instruction by instruction. The object needs line numbers: compile it with -g.
    #[arg(long, hide_short_help = true)]
    hot_spots: bool,
    /// Draw the instructions of an event of each program at its hook as a flame graph
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    svg: Option<PathBuf>,
    /// Attach a program elsewhere than its section says: PROGRAM=FUNCTION, PROGRAM=CATEGORY:NAME, … [repeatable]
    ///
    /// XDP and cgroup_skb programs, which else run in a loop, are attached at a device or a control group: PROGRAM=lo, PROGRAM=/.
    #[arg(long = "at", value_name = "PROGRAM=HOOK", hide_short_help = true)]
    targets: Vec<String>,
    /// Make events of programs at hooks by this stimulus or command [default: the stimulus that does it best] [repeatable]
    ///
    /// A stimulus is one of the menu: bpfcost list --stimuli. Anything else is a command, which must end by itself. With
    /// several, such as tcp4 and tcp6, each program has a case for each: PROGRAM/tcp4.
    #[arg(long = "stimulus", value_name = "NAME|COMMAND", hide_short_help = true)]
    stimuli: Vec<String>,
    /// Also run programs that signal, send, print, or write to processes or perf buffers
    #[arg(long)]
    allow_effects: bool,
    #[command(flatten)]
    options: Options,
}

const SET: &str = "Give a variable or constant of the object a value [repeatable]";

/// Seconds that a loader may take.
const LOADER_S: u64 = 60;

/// Inputs where none are named.
const DEFAULT_INPUTS: [&str; 2] = ["builtin:udp", "builtin:zeros"];

pub(super) fn run(args: &Args) -> Result<Exit> {
    let options = &args.options;
    let host = Host::default();
    if let Some(file) = &args.record_expected {
        expected::recordable(file, options.on.len())?;
    }
    if args.hot_spots {
        traceable(&options.on)?;
    }
    if let Some(file) = &args.svg {
        flame::check(file)?;
    }
    let objects = Objects::read(args)?;
    let subject = objects.looped(args)?;
    let mut plans = Vec::new();
    if !subject.programs.is_empty() {
        let programs = Programs::new(subject.clone())?;
        if let Some(why) = programs.misfit() {
            return Err(usage(format!("{why}\n  See: bpfcost program --help")));
        }
        if let Some(why) = programs.unmixed() {
            return Err(usage(format!("--mix: {why}")));
        }
        let experiment =
            || -> Result<Box<dyn Experiment>> { Ok(Box::new(Programs::new(subject.clone())?)) };
        plans = measurement::plans(options, experiment, args.budget, &host)?;
        expected::complete(&subject, plans.iter().map(|(_, plan)| plan))?;
    }
    if subject.programs.is_empty() {
        hooked::nothing_looped(args)?;
    }
    if let Some(subject) = hooked::subject(args, &objects)? {
        let experiment =
            || -> Result<Box<dyn Experiment>> { Ok(Box::new(Hooks::new(subject.clone())?)) };
        plans.extend(measurement::plans(options, experiment, args.budget, &host)?);
    }
    if !options.dry_run {
        for (experiment, plan) in plans.iter().filter(|(_, plan)| plan.target == "host") {
            place::able(&host, &**experiment)?;
            supported(&**experiment, plan)?;
        }
    }
    let record = |records: &[Record]| {
        if let Some(file) = &args.svg {
            hooked::draw(file, &args.object, records)?;
        }
        let files = args.record_expected.iter();
        let recorded = files.map(|file| expected::record(file, &subject, records));
        recorded.collect()
    };
    measurement::run(options, EventLoad::default(), plans, &host, &record)
}

impl Args {
    /// True if programs can be attached on these targets: a trace cuts their events out there.
    fn can_attach(&self) -> bool {
        let targets = &self.options.on;
        !targets.is_empty() && targets.iter().all(|target| target.starts_with("exact:"))
    }
}

/// A type of programs, by the word that sections have for it.
fn program_kind(word: &str) -> Result<ProgramKind, String> {
    let kinds = ProgramKind::ALL;
    let words = kinds.map(ProgramKind::word).join(", ");
    let named = kinds.into_iter().find(|kind| kind.word() == word);
    named.ok_or_else(|| format!("programs of these types can be run in a loop: {words}"))
}

/// Objects that the command line names, and their programs by the way in which they are measured.
struct Objects {
    /// The object, and behind it the one that it is compared with, if there is one.
    files: Vec<ObjectFile>,
    settings: Settings,
    /// Programs to be run in a loop.
    looped: Vec<String>,
    /// Programs to be attached at their hooks.
    hooked: Vec<String>,
}

impl Objects {
    fn read(args: &Args) -> Result<Self> {
        let read = |path: &Path| Ok::<_, Error>(ObjectFile::read(path)?.with_type(args.kind));
        let object = read(&args.object)?;
        let old = args.against.as_deref().map(read).transpose()?;
        if let Some(kind) = args.kind
            && object.programs()?.iter().all(|program| program.is_named)
        {
            return Err(usage(format!(
                "--type {}: the sections of all programs of {} tell their types, which they keep\n  Leave it out",
                kind.word(),
                object.path().display()
            )));
        }
        let settings = Settings {
            allow_effects: args.allow_effects,
            ..Settings::default()
        };
        measurement::once(&args.programs)?;
        let Chosen { looped, hooked } = Chosen::from_args(args, &object, &settings)?;
        let (looped, hooked) = in_both(&object, looped, hooked, old.as_ref())?;
        Ok(Objects {
            files: std::iter::once(object).chain(old).collect(),
            settings,
            looped,
            hooked,
        })
    }

    /// The programs that run in a loop, on packets; maybe none.
    fn looped(&self, args: &Args) -> Result<OwnPrograms> {
        let kinds = kinds(&self.files, &self.looped)?;
        let inputs = if args.inputs.is_empty() {
            default_inputs(&kinds)?
        } else {
            inputs(&args.inputs)?
        };
        if inputs.iter().any(|input| input.name == MIX) {
            return Err(usage(format!(
                "a packet is called {MIX}, which is the name of all packets in turn (--mix)\n  Rename its file"
            )));
        }
        let mut context = PacketContext::default();
        for words in &args.contexts {
            let added = context.add(words, &kinds);
            added.map_err(|why| usage(format!("--context {why}")))?;
        }
        Ok(OwnPrograms {
            inputs,
            mix: args.mix,
            hot_spots: args.hot_spots,
            settings: Settings {
                context,
                ..self.settings(args)?
            },
            setup: setup(args)?,
            expected: Expected::parse(&args.expected, &self.files[0])?,
            objects: self.files.clone(),
            programs: self.looped.clone(),
        })
    }

    /// Settings with which objects are loaded.
    fn settings(&self, args: &Args) -> Result<Settings> {
        Ok(Settings {
            maps: maps(&args.maps, &self.files[0])?,
            slots: slots(&args.also, &self.files)?,
            ..self.settings.clone()
        })
    }
}

/// Programs by how they are measured.
struct Chosen {
    looped: Vec<String>,
    hooked: Vec<String>,
}

impl Chosen {
    /// The named programs, or all that can be measured on these targets; why not, if none can.
    fn from_args(args: &Args, object: &ObjectFile, settings: &Settings) -> Result<Self> {
        let with_hooks = object.hooks()?;
        let names = with_hooks.iter().map(|hook| hook.program.clone());
        let hooks: Vec<String> = names.collect();
        let all = object.programs()?;
        let can_attach = args.can_attach();
        let is_hooked = |name: &String| {
            let one = all.iter().find(|one| one.name == *name);
            let is_looped = one.is_some_and(|one| {
                one.kind.is_ok() && !(can_attach && has_hook(args, name, &with_hooks))
            });
            hooks.contains(name) && !is_looped
        };
        if !args.programs.is_empty() {
            let (hooked, looped): (Vec<String>, Vec<String>) =
                args.programs.iter().cloned().partition(is_hooked);
            if let Some(first) = hooked.first()
                && !can_attach
            {
                let why = all.iter().find(|one| one.name == *first);
                let why = why
                    .and_then(|one| one.kind.clone().err())
                    .unwrap_or_default();
                return Err(hooked::not_here(object, first, &why));
            }
            return Ok(Chosen { looped, hooked });
        }
        let hooked: Vec<String> = hooks
            .iter()
            .filter(|name| is_hooked(name))
            .cloned()
            .collect();
        let is_waiting = !can_attach && !hooked.is_empty();
        let hooked = if can_attach { hooked } else { Vec::new() };
        let (mut looped, others) = loopable(all, settings);
        looped.retain(|name| !hooked.contains(name));
        let others: Vec<String> = others
            .into_iter()
            .filter(|(name, _)| !hooked.contains(name))
            .map(|(_, why)| why)
            .collect();
        let mut others = others.join("\n");
        if is_waiting {
            others += "\n  To count the instructions of programs at their hooks: --on exact:6.12";
        }
        if looped.is_empty() && hooked.is_empty() {
            return Err(usage(format!("{}: {others}", object.path().display())));
        }
        if !others.is_empty() {
            note!("not measured: {others}");
        }
        Ok(Chosen { looped, hooked })
    }
}

/// True if a program that can be run in a loop is to be attached: its hook is named, or its section names a tracepoint and no
/// context is given to run it with.
fn has_hook(args: &Args, name: &str, hooks: &[Hook]) -> bool {
    let is_named = |words: &String| words.split_once('=').is_some_and(|(one, _)| one == name);
    let has_target = |hook: &Hook| hook.program == name && hook.target.is_some();
    args.targets.iter().any(is_named) || args.inputs.is_empty() && hooks.iter().any(has_target)
}

/// Refuses targets on which no one sees single instructions.
fn traceable(targets: &[String]) -> Result<()> {
    let timed = targets.iter().find(|target| !target.starts_with("exact:"));
    let named = match (targets, timed) {
        ([], _) => "host",
        (_, Some(timed)) => timed,
        (_, None) => return Ok(()),
    };
    Err(usage(format!(
        "--hot-spots: instructions can't be traced on {named}, only where an emulator executes each\n  \
         Name exact targets alone: --on exact:6.12"
    )))
}

/// The loader that fills maps.
fn setup(args: &Args) -> Result<Option<LoaderCommand>> {
    let line = args.setup.as_deref();
    line.map(|line| loader("--setup", line, &args.options.on))
        .transpose()
}

/// A loader or stimulus, started where this program is.
fn loader(option: &str, line: &str, targets: &[String]) -> Result<LoaderCommand> {
    let counts = |target: &String| target.starts_with("exact:");
    Ok(LoaderCommand {
        command: command::split(option, line)?,
        folder: env::current_dir().context("there is no current folder")?,
        // The clock of such a guest counts instructions, and leaps to the next deadline while there are none.
        limit_s: (!targets.iter().any(counts)).then_some(LOADER_S),
    })
}

/// The programs that the old object has too; says which one of them has not.
fn in_both(
    object: &ObjectFile,
    looped: Vec<String>,
    hooked: Vec<String>,
    old: Option<&ObjectFile>,
) -> Result<(Vec<String>, Vec<String>)> {
    let Some(old) = old else {
        return Ok((looped, hooked));
    };
    let names = |object: &ObjectFile| -> Result<Vec<String>> {
        let programs = object.programs()?.into_iter();
        Ok(programs.map(|program| program.name).collect())
    };
    let (before, now) = (names(old)?, names(object)?);
    let gone: Vec<String> = before
        .iter()
        .filter(|name| !now.contains(name))
        .cloned()
        .collect();
    let in_old = |programs: Vec<String>| -> (Vec<String>, Vec<String>) {
        programs.into_iter().partition(|name| before.contains(name))
    };
    let ((looped, new), (hooked, more)) = (in_old(looped), in_old(hooked));
    let new = [new, more].concat();
    if looped.is_empty() && hooked.is_empty() {
        return Err(usage(format!(
            "{} has none of these programs: {}",
            old.path().display(),
            new.join(", ")
        )));
    }
    for (names, lacks) in [(new, old), (gone, object)] {
        if !names.is_empty() {
            note!(
                "not measured, as {} has no such program: {}",
                lacks.path().display(),
                names.join(", ")
            );
        }
    }
    Ok((looped, hooked))
}

/// The types of the chosen programs.
fn kinds(objects: &[ObjectFile], programs: &[String]) -> Result<Vec<ProgramKind>> {
    let mut kinds = Vec::new();
    for object in objects {
        let all = object.programs()?.into_iter();
        let chosen = all.filter(|one| programs.contains(&one.name));
        kinds.extend(chosen.filter_map(|one| one.kind.ok()));
    }
    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

/// A packet or a context, or one of each: what the programs take.
fn default_inputs(kinds: &[ProgramKind]) -> Result<Vec<Input>> {
    let takes = |input: &Input| kinds.iter().any(|&kind| input.misfit(kind, "").is_none());
    let mut defaults = inputs(&DEFAULT_INPUTS.map(str::to_owned))?;
    defaults.retain(takes);
    Ok(defaults)
}

/// All programs that can be run in a loop, and why each of the others can't.
fn loopable(all: Vec<ProgramEntry>, settings: &Settings) -> (Vec<String>, Vec<(String, String)>) {
    let (mut names, mut others) = (Vec::new(), Vec::new());
    for program in all {
        match (program.forbidden(settings), program.kind) {
            (None, Ok(_)) => names.push(program.name),
            (Some(why), Ok(_)) | (_, Err(why)) => others.push((program.name, why)),
        }
    }
    (names, others)
}

/// Refuses programs of which this kernel takes none.
fn supported(experiment: &dyn Experiment, plan: &Plan) -> Result<()> {
    let mut first = None;
    for case in plan.cases.iter().filter(|case| case.role == Role::Case) {
        match experiment.unsupported(case)? {
            None => return Ok(()),
            Some(reason) => first = first.or(Some(reason)),
        }
    }
    first.map_or(Ok(()), |reason| Err(lacking(reason)))
}
