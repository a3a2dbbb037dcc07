//! A profile: distinct stacks by name, with their counts, and what became of all events.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use bpfcost_bpf::{
    stack_counter::{StackCount, StackTotals},
    unwind::Generation,
};
use serde::{Serialize, Serializer};

use super::{Frame, SymbolHistory};

/// Names on a stack of calls whose callers are hidden: ftrace or kprobes have put their own address there.
const HIDING: [&str; 3] = [
    "return_to_handler",
    "arch_rethook_trampoline",
    "kretprobe_trampoline",
];

/// A stack by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfiledStack {
    /// Occurrences.
    pub count: u64,
    /// The innermost first, as numbers of the profile's frames.
    frames: Vec<u32>,
}

/// Input of a profile.
#[derive(Clone, Debug)]
pub struct ProfileInput {
    /// The events' names.
    pub events: Vec<String>,
    /// Method by which stacks were taken: `by hand (ORC)`, `by the kernel's helper`.
    pub taken: String,
    /// Seconds that it took.
    pub seconds: f64,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Addresses that were asked for.
    pub depth: u32,
    /// Bytes of kernel memory.
    pub kernel_bytes: u64,
    /// CPU time that this process took meanwhile, in seconds.
    pub own_cpu_s: f64,
    /// Totals of all events, by what became of them.
    pub totals: StackTotals,
}

/// Distinct stacks with their counts.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Input that it was made of.
    pub input: ProfileInput,
    /// The most frequent first.
    pub stacks: Vec<ProfiledStack>,
    /// Distinct frames: a hundred thousand stacks have some ten thousand.
    frames: Vec<Frame>,
}

impl Profile {
    /// Names the addresses. Stacks with the same names and offsets are one, whatever modules came and went.
    pub fn new(input: ProfileInput, counted: Vec<StackCount>, symbols: &SymbolHistory) -> Self {
        let mut frames = Frames::default();
        let mut counts: HashMap<Vec<u32>, u64> = HashMap::new();
        for stack in counted {
            let number = |address: &u64| frames.number(*address, stack.generation, symbols);
            let stack_frames: Vec<u32> = stack.addresses.iter().map(number).collect();
            *counts.entry(stack_frames).or_default() += stack.count;
        }
        let mut stacks: Vec<ProfiledStack> = counts
            .into_iter()
            .map(|(frames, count)| ProfiledStack { count, frames })
            .collect();
        let frames = frames.frames;
        let addresses = |stack: &ProfiledStack| -> Vec<u64> {
            let frames = stack
                .frames
                .iter()
                .filter_map(|frame| frames.get(*frame as usize));
            frames.map(|frame| frame.address).collect()
        };
        stacks.sort_by(|one, other| {
            (other.count.cmp(&one.count)).then_with(|| addresses(one).cmp(&addresses(other)))
        });
        Profile {
            input,
            stacks,
            frames,
        }
    }

    /// The frames of one of its stacks, the innermost first.
    pub fn frames<'a>(
        &'a self,
        stack: &'a ProfiledStack,
    ) -> impl DoubleEndedIterator<Item = &'a Frame> {
        stack
            .frames
            .iter()
            .filter_map(|frame| self.frames.get(*frame as usize))
    }

    /// Stacks whose callers are hidden: their return addresses were replaced by those of a tracer.
    pub fn incomplete(&self) -> u64 {
        let hides = |frame: &Frame| HIDING.contains(&&*frame.name);
        let incomplete = self
            .stacks
            .iter()
            .filter(|stack| self.frames(stack).any(hides));
        incomplete.map(|stack| stack.count).sum()
    }

    /// Stacks as long as was asked for, which may have gone on.
    pub fn cut(&self) -> u64 {
        let depth = self.input.depth as usize;
        let long = self
            .stacks
            .iter()
            .filter(|stack| stack.frames.len() >= depth);
        long.map(|stack| stack.count).sum()
    }

    /// Lines as flame graphs are made of: `outer;inner COUNT`, sorted.
    pub fn folded(&self) -> Vec<String> {
        let mut counts: HashMap<String, u64> = HashMap::new();
        for stack in &self.stacks {
            let names: Vec<String> = (self.frames(stack).rev())
                .map(|frame| frame.function().replace(';', ":"))
                .collect();
            *counts.entry(names.join(";")).or_default() += stack.count;
        }
        let mut lines: Vec<String> = counts
            .into_iter()
            .map(|(names, count)| format!("{names} {count}"))
            .collect();
        lines.sort();
        lines
    }

    /// Writes it as JSON, one object on a line.
    ///
    /// # Errors
    ///
    /// Where it can't be written.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let (input, totals) = (&self.input, &self.input.totals);
        let view = JsonProfile {
            events: &input.events,
            taken: &input.taken,
            seconds: input.seconds,
            depth: input.depth,
            totals: JsonTotals {
                events: totals.events,
                counted: totals.counted,
                reported: totals.reported,
                lost: totals.lost,
                missed: totals.missed,
                cut: self.cut(),
                incomplete: self.incomplete(),
                ended_early: totals.losses.lost,
                stale: totals.losses.stale,
            },
            cost: JsonCost {
                runs: totals.runs,
                run_ns: totals.run_ns,
                of_machine: self.of_machine(),
                kernel_bytes: input.kernel_bytes,
                own_cpu_s: input.own_cpu_s,
            },
            stacks: JsonStacks(self),
        };
        serde_json::to_writer(&mut *out, &view)?;
        writeln!(out)
    }

    /// The share of the machine's CPU time that the programs took.
    pub fn of_machine(&self) -> f64 {
        let machine_s = self.input.seconds * self.input.cpus as f64;
        self.input.totals.run_ns as f64 / 1e9 / machine_s.max(f64::MIN_POSITIVE)
    }
}

/// Frames while a profile is made.
#[derive(Default)]
struct Frames {
    frames: Vec<Frame>,
    by_name: HashMap<String, u32>,
    by_address: HashMap<(u64, Generation), u32>,
}

impl Frames {
    fn number(&mut self, address: u64, generation: Generation, symbols: &SymbolHistory) -> u32 {
        if let Some(number) = self.by_address.get(&(address, generation)) {
            return *number;
        }
        let frame = symbols.frame(address, generation);
        let next = self.frames.len() as u32;
        let number = *self.by_name.entry(frame.to_string()).or_insert(next);
        if number == next {
            self.frames.push(frame);
        }
        self.by_address.insert((address, generation), number);
        number
    }
}

#[derive(Serialize)]
struct JsonProfile<'a> {
    events: &'a [String],
    taken: &'a str,
    seconds: f64,
    depth: u32,
    totals: JsonTotals,
    cost: JsonCost,
    stacks: JsonStacks<'a>,
}

#[derive(Serialize)]
struct JsonTotals {
    events: u64,
    counted: u64,
    reported: u64,
    lost: u64,
    missed: Option<u64>,
    cut: u64,
    incomplete: u64,
    ended_early: u64,
    stale: u64,
}

#[derive(Serialize)]
struct JsonCost {
    runs: u64,
    run_ns: u64,
    of_machine: f64,
    kernel_bytes: u64,
    own_cpu_s: f64,
}

/// Stacks one by one: with their names, all together are too large to hold.
struct JsonStacks<'a>(&'a Profile);

#[derive(Serialize)]
struct JsonStack<'a> {
    count: u64,
    frames: Vec<&'a Frame>,
}

impl Serialize for JsonStacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.stacks.iter().map(|stack| JsonStack {
            count: stack.count,
            frames: self.0.frames(stack).collect(),
        }))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use bpfcost_bpf::unwind::KernelSymbols;

    use super::*;

    const SYMBOLS: &str = "\
ffffffff81000000 T entry
ffffffff81000100 T middle
ffffffff81000200 T inner
ffffffff81000300 T return_to_handler
ffffffffc0000000 t of_module\t[loop]
";

    fn count(addresses: &[u64], count: u64, rules: usize) -> StackCount {
        StackCount {
            addresses: addresses.to_vec(),
            count,
            generation: Generation {
                rules,
                is_stale: false,
            },
        }
    }

    pub(in crate::stack) fn profile() -> Profile {
        let mut symbols = SymbolHistory::with(KernelSymbols::parse(SYMBOLS), "");
        let later = SYMBOLS.replace("of_module\t[loop]", "other\t[dummy]");
        symbols.add(&KernelSymbols::parse(later), "");
        let (entry, middle, inner) = (0xffffffff81000010, 0xffffffff81000110, 0xffffffff81000200);
        let (hiding, module) = (0xffffffff81000300, 0xffffffffc0000004);
        let counted = vec![
            count(&[inner, middle, entry], 5, 0),
            count(&[inner, middle, entry], 2, 1),
            count(&[inner, hiding], 3, 0),
            count(&[module, entry], 1, 0),
            count(&[module, entry], 4, 1),
        ];
        let input = ProfileInput {
            events: vec!["inner".to_owned()],
            taken: "by hand (ORC)".to_owned(),
            seconds: 1.0,
            cpus: 2,
            depth: 3,
            kernel_bytes: 0,
            own_cpu_s: 0.0,
            totals: StackTotals {
                events: 15,
                counted: 15,
                ..StackTotals::default()
            },
        };
        Profile::new(input, counted, &symbols)
    }

    #[test]
    fn stacks_have_the_names_of_when_they_came() {
        let profile = profile();
        let shown: Vec<(u64, Vec<String>)> = (profile.stacks.iter())
            .map(|stack| {
                (
                    stack.count,
                    profile.frames(stack).map(Frame::to_string).collect(),
                )
            })
            .collect();
        assert_eq!(
            shown[0],
            (
                7,
                vec!["inner".into(), "middle+0x10".into(), "entry+0x10".into()]
            )
        );
        assert_eq!(
            shown[1],
            (4, vec!["other+0x4 [dummy]".into(), "entry+0x10".into()])
        );
        assert_eq!(shown.len(), 4);
        assert_eq!((profile.incomplete(), profile.cut()), (3, 7));
    }

    #[test]
    fn json_has_every_account() {
        let mut json = Vec::new();
        profile().write_json(&mut json).expect("written");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("one object");
        let totals = &json["totals"];
        let sum = ["counted", "reported", "lost"].map(|name| totals[name].as_u64().expect(name));
        assert_eq!(totals["events"], sum.iter().sum::<u64>());
        assert_eq!(
            (&totals["cut"], &totals["incomplete"]),
            (&7.into(), &3.into())
        );
        let stacks = json["stacks"].as_array().expect("stacks");
        let counts = stacks.iter().map(|stack| stack["count"].as_u64());
        assert_eq!(counts.sum::<Option<u64>>(), Some(15));
        assert_eq!(stacks[1]["frames"][0]["module"], "dummy");
    }

    #[test]
    fn folded_lines_begin_with_the_outermost() {
        assert_eq!(
            profile().folded(),
            [
                "entry;middle;inner 7",
                "entry;of_module [loop] 1",
                "entry;other [dummy] 4",
                "return_to_handler;inner 3",
            ]
        );
    }
}
