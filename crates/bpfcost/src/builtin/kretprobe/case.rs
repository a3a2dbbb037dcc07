//! Cases and pairs of `kretprobe`: a probe on a system call, the threads that make the call, and the instances of a
//! kretprobe.

use std::collections::BTreeMap;

use bpfcost_bpf::{
    Feature,
    attach::{AttachMethod, Counter, CounterBody},
};

use bpfcost_model::{Case, Pair, Role, Sizing};
use bpfcost_threads::call::Syscall;

/// Instances of a kretprobe, by CPU: those of the study. The second is what the kernel itself takes.
const MAXACTIVE: [u32; 3] = [1, 2, 4];
const USUAL: u32 = 2;

/// The most instances that the kernel lets tracefs ask for (KRETPROBE_MAXACTIVE_MAX).
const MAX_INSTANCES: u32 = 4096;

/// Kind of probe on the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeKind {
    None,
    Kprobe,
    Kretprobe {
        /// Instances, a CPU.
        maxactive: u32,
    },
    KretprobeMulti,
    Fexit,
}

/// Parameters of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KretprobeCase {
    pub(super) probe: ProbeKind,
    pub(super) threads: u32,
    pub(super) call: Syscall,
}

impl ProbeKind {
    fn all() -> impl Iterator<Item = Self> {
        let kretprobes = MAXACTIVE.map(|maxactive| ProbeKind::Kretprobe { maxactive });
        [ProbeKind::None, ProbeKind::Kprobe]
            .into_iter()
            .chain(kretprobes)
            .chain([ProbeKind::KretprobeMulti, ProbeKind::Fexit])
    }

    fn name(self) -> &'static str {
        match self {
            ProbeKind::None => "none",
            ProbeKind::Kprobe => "kprobe",
            ProbeKind::Kretprobe { .. } => "kretprobe",
            ProbeKind::KretprobeMulti => "kretprobe.multi",
            ProbeKind::Fexit => "fexit",
        }
    }

    /// Returns the method that attaches the probe on so many CPUs; `None` if there is nothing to attach.
    pub(super) fn method(self, cpus: usize) -> Option<AttachMethod> {
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        match self {
            ProbeKind::None => None,
            ProbeKind::Kprobe => Some(AttachMethod::Kprobe),
            ProbeKind::Kretprobe { maxactive } => Some(AttachMethod::Kretprobe {
                maxactive: maxactive.saturating_mul(cpus).min(MAX_INSTANCES),
            }),
            ProbeKind::KretprobeMulti => Some(AttachMethod::KretprobeMulti),
            ProbeKind::Fexit => Some(AttachMethod::Fexit),
        }
    }

    /// `/maxactive-4x`, where it is not the usual.
    fn suffix(self) -> String {
        match self {
            ProbeKind::Kretprobe { maxactive } if maxactive != USUAL => {
                format!("/maxactive-{maxactive}x")
            }
            _ => String::new(),
        }
    }
}

/// Every case on so many CPUs, in the order of tables.
pub(super) fn all(cpus: usize) -> Vec<KretprobeCase> {
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX).max(1);
    let mut threads = vec![1, cpus, cpus.saturating_mul(4)];
    threads.dedup();
    let many = threads[threads.len() - 1];
    let way = |probe, threads, call| KretprobeCase {
        probe,
        threads,
        call,
    };
    let quick = threads.iter().flat_map(|&threads| {
        ProbeKind::all().map(move |probe| way(probe, threads, Syscall::Flock))
    });
    // Waiting is all that these take, whatever is attached: what counts is who is missed.
    let asleep = ProbeKind::all()
        .filter(|probe| !matches!(probe, ProbeKind::None | ProbeKind::Kprobe))
        .map(|probe| way(probe, many, Syscall::Sleep));
    quick.chain(asleep).collect()
}

impl KretprobeCase {
    /// Parses the factors of a case; returns `None` if the case does not belong to this experiment.
    pub(super) fn from_case(case: &Case) -> Option<Self> {
        let factor = |name: &str| case.factors.get(name).map(String::as_str);
        let maxactive =
            factor("maxactive").map_or(Some(USUAL), |text| text.strip_suffix('x')?.parse().ok())?;
        let probe = match factor("probe")? {
            "kretprobe" => ProbeKind::Kretprobe { maxactive },
            name => ProbeKind::all().find(|probe| probe.name() == name)?,
        };
        Some(KretprobeCase {
            probe,
            threads: factor("threads")?.parse().ok()?,
            call: Syscall::ALL
                .into_iter()
                .find(|call| Some(call.name()) == factor("call"))?,
        })
    }

    fn name(self) -> String {
        let call = match self.call {
            Syscall::Flock => "",
            Syscall::Sleep => "/sleep",
        };
        let KretprobeCase { probe, threads, .. } = self;
        format!("{}/{threads}{call}{}", probe.name(), probe.suffix())
    }

    /// Kernel features that this case needs, the most informative first.
    pub(super) fn needs(self) -> Vec<Feature> {
        let method = self.probe.method(1);
        method.map_or_else(Vec::new, |method| {
            Counter::needs(method, CounterBody::Calls)
        })
    }

    pub(super) fn case(self) -> Case {
        let mut factors = BTreeMap::from([
            ("probe".to_owned(), self.probe.name().to_owned()),
            ("threads".to_owned(), self.threads.to_string()),
            ("call".to_owned(), self.call.name().to_owned()),
        ]);
        let about = match self.probe {
            ProbeKind::None => "nothing attached".to_owned(),
            ProbeKind::Kprobe => "a kprobe at its entry".to_owned(),
            ProbeKind::Kretprobe { maxactive } => {
                // The usual one is left out, so that its cases make one curve's family with the others.
                if maxactive != USUAL {
                    factors.insert("maxactive".into(), format!("{maxactive}x"));
                }
                match maxactive {
                    1 => "a kretprobe with one instance per CPU".to_owned(),
                    more => format!("a kretprobe with {more} instances per CPU"),
                }
            }
            ProbeKind::KretprobeMulti => "an fprobe on its return".to_owned(),
            ProbeKind::Fexit => "a trampoline around it".to_owned(),
        };
        let threads = match self.threads {
            1 => "one thread".to_owned(),
            more => format!("{more} threads"),
        };
        Case {
            name: self.name(),
            group: self.call.about().to_owned(),
            factors,
            about: format!("{about}, {threads}"),
            role: Role::Case,
            floor: None,
            sizing: Sizing::Calibrated {
                most: self.call.most(),
            },
            ..Case::default()
        }
    }

    /// Returns the pairs of this case and its baselines: every probe against none, and a kretprobe against other
    /// mechanisms that do the same.
    pub(super) fn pairs(self) -> Vec<Pair> {
        // Calls that sleep cost the time that they sleep.
        if self.call == Syscall::Sleep || self.probe == ProbeKind::None {
            return Vec::new();
        }
        let mut baselines = vec![(ProbeKind::None, "the probe")];
        if self.probe == (ProbeKind::Kretprobe { maxactive: USUAL }) {
            baselines.push((ProbeKind::KretprobeMulti, "kretprobe against fprobe"));
            baselines.push((ProbeKind::Fexit, "kretprobe against trampoline"));
        }
        let pair = |(probe, about): (ProbeKind, &str)| Pair {
            case: self.name(),
            baseline: KretprobeCase { probe, ..self }.name(),
            about: about.to_owned(),
        };
        baselines.into_iter().map(pair).collect()
    }
}
