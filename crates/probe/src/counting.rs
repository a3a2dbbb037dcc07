//! Built-in probes that count an event. They run in this process, because they have nothing to do in user space.
//!
//! `builtin:event:KIND:EVENT:WORK`: a program on a tracepoint (`category:name`) or a kernel function that counts
//! its runs, and does nothing else (`null`) or writes the process into a per-CPU map (`map`). Study 003 had these
//! two.
//!
//! `builtin:busy:TRACEPOINT:NANOS`: a program on a tracepoint that is busy for a known time in each run. It counts
//! `spell_ns`, the time that its runs were busy in that window.

use anyhow::{Context, Result, bail};
use bpfcost_bpf::{
    Feature,
    attach::{AttachMethod, Counter, CounterBody},
};

use super::{Arguments, BuiltIn, Probe, Runs, WindowCounts};
use bpfcost_model::Fault;
use bpfcost_process::{RunContext, restore::RestoreGuard};
use bpfcost_text::suggest;

/// Calls that can be inside a function with a kretprobe at once: as many as it holds instances ready.
const INSIDE: u32 = 64;

/// The ways to attach, by name.
const KINDS: [(&str, AttachMethod); 10] = [
    ("tracepoint", AttachMethod::Tracepoint),
    ("raw_tp", AttachMethod::RawTp),
    ("tp_btf", AttachMethod::TpBtf),
    ("kprobe", AttachMethod::Kprobe),
    ("kprobe-int3", AttachMethod::KprobeInt3),
    ("kprobe.multi", AttachMethod::KprobeMulti),
    ("kretprobe", AttachMethod::Kretprobe { maxactive: INSIDE }),
    ("kretprobe.multi", AttachMethod::KretprobeMulti),
    ("fentry", AttachMethod::Fentry),
    ("fexit", AttachMethod::Fexit),
];

/// Default time that a busy program is busy, in nanoseconds.
const BUSY_NS: u64 = 1000;
/// Limits of that time: the shortest has some turns of its loop, the longest no watchdog minds.
const BUSY_LIMITS_NS: std::ops::RangeInclusive<u64> = 200..=1_000_000;

/// The entry of `builtin:event`.
pub(super) const EVENT: BuiltIn = BuiltIn {
    form: "event:KIND:EVENT:BODY",
    needs: |arguments| Ok(CounterSpec::event(arguments)?.needs()),
    absent: |arguments| CounterSpec::event(arguments)?.absent(),
    switch_s: 0.08,
    runs: Runs::Here(|arguments| CounterSpec::event(arguments)?.load()),
};

/// The entry of `builtin:busy`.
pub(super) const BUSY: BuiltIn = BuiltIn {
    form: "busy:EVENT:NANOSECONDS",
    needs: |arguments| Ok(CounterSpec::busy(arguments)?.needs()),
    absent: |arguments| CounterSpec::busy(arguments)?.absent(),
    switch_s: 0.08,
    runs: Runs::Here(|arguments| CounterSpec::busy(arguments)?.load()),
};

/// The counted event, and how it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CounterSpec {
    method: AttachMethod,
    event: String,
    work: CounterBody,
}

impl CounterSpec {
    /// Reads the arguments of `builtin:event`.
    fn event(arguments: &Arguments) -> Result<Self> {
        let [kind, event @ .., work] = arguments else {
            bail!(usage_of_event());
        };
        let method = KINDS.iter().find(|(name, _)| name == kind);
        let Some((_, method)) = method else {
            let names = KINDS.map(|(name, _)| name);
            bail!(
                "builtin:event has no kind {kind}{}\n  Its kinds are: {}",
                suggest(kind, names.into_iter()),
                names.join(", ")
            );
        };
        let work = match work.as_str() {
            "null" => CounterBody::Null,
            "map" => CounterBody::Map,
            other => bail!("builtin:event has no program body {other}\n  Use null or map"),
        };
        let named = if method.takes_tracepoints() {
            event.len() == 2
        } else {
            event.len() == 1
        };
        if !named || event.iter().any(String::is_empty) {
            bail!(usage_of_event());
        }
        Ok(CounterSpec {
            method: *method,
            event: event.join(":"),
            work,
        })
    }

    /// Reads the arguments of `builtin:busy`.
    fn busy(arguments: &Arguments) -> Result<Self> {
        let (event, ns) = match arguments {
            [category, name] => ([category, name], BUSY_NS),
            [category, name, ns] => {
                let ns = ns.parse().with_context(|| {
                    format!("builtin:busy: {ns} is not a number of nanoseconds")
                })?;
                ([category, name], ns)
            }
            _ => bail!(
                "builtin:busy needs a tracepoint and nanoseconds: \
                 builtin:busy:raw_syscalls:sys_enter:1000"
            ),
        };
        if !BUSY_LIMITS_NS.contains(&ns) {
            bail!(
                "builtin:busy takes {} to {} ns, not {ns}",
                BUSY_LIMITS_NS.start(),
                BUSY_LIMITS_NS.end()
            );
        }
        Ok(CounterSpec {
            method: AttachMethod::Tracepoint,
            event: event.map(String::as_str).join(":"),
            work: CounterBody::Busy { ns },
        })
    }

    /// Kernel features that it needs.
    fn needs(&self) -> Vec<Feature> {
        Counter::needs(self.method, self.work)
    }

    /// Reason that this kernel has no such event, where it has none.
    fn absent(&self) -> Result<Option<String>> {
        Ok(Counter::absent(self.method, &self.event)?)
    }

    fn load(&self) -> Result<Box<dyn Probe>> {
        Ok(Box::new(CounterProbe {
            counter: Counter::load(self.method, &self.event, self.work)?,
            _setting: RestoreGuard::of_settings(self.method.attach().changes())?,
        }))
    }
}

fn usage_of_event() -> &'static str {
    "builtin:event needs a kind, an event and a program body (null or map), as in\n  \
     builtin:event:tracepoint:sock:sock_recv_length:null or builtin:event:fentry:udp_recvmsg:map"
}

/// A program that is loaded, and goes on and off.
struct CounterProbe {
    counter: Counter,
    /// Restored where this process is killed.
    _setting: Vec<RestoreGuard>,
}

impl Probe for CounterProbe {
    fn attach(&mut self, _scene: &RunContext) -> Result<(), Fault> {
        Ok(self.counter.attach()?)
    }

    fn detach(&mut self) -> Result<WindowCounts, Fault> {
        let counted = self.counter.detach()?;
        // What was put into a run, by the kernel's clock: the mean, interruptions included.
        let spell_ns = match (counted.busy_ns, counted.hits) {
            (0, _) | (_, 0) => None,
            (busy_ns, hits) => Some(("spell_ns".to_owned(), (busy_ns + hits / 2) / hits)),
        };
        Ok(WindowCounts {
            hits: Some(counted.hits),
            lost: counted.missed.unwrap_or(0),
            counts: spell_ns.into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(':').map(str::to_owned).collect()
    }

    fn event(text: &str) -> Result<CounterSpec> {
        CounterSpec::event(&words(text))
    }

    #[test]
    fn events_are_read() {
        let read = event("tracepoint:sock:sock_recv_length:map").unwrap();
        assert_eq!(read.method, AttachMethod::Tracepoint);
        assert_eq!(read.event, "sock:sock_recv_length");
        assert_eq!(read.work, CounterBody::Map);
        let read = event("kprobe.multi:udp_recvmsg:null").unwrap();
        assert_eq!(read.method, AttachMethod::KprobeMulti);
        assert_eq!(read.event, "udp_recvmsg");
        assert_eq!(read.work, CounterBody::Null);
    }

    #[test]
    fn what_is_no_event_is_told() {
        let told = |text| event(text).unwrap_err().to_string();
        assert!(told("kprobe.mult:f:null").contains("did you mean kprobe.multi?"));
        assert!(told("fentry:f:nul").contains("null or map"));
        for text in [
            "fentry:a:b:null",
            "raw_tp:sys_enter:null",
            "fentry::null",
            "fentry:f",
            "fentry",
        ] {
            let told = told(text);
            assert!(
                told.contains("no program body") || told.contains("needs a kind"),
                "{text}: {told}"
            );
        }
    }

    #[test]
    fn busy_is_read() {
        let busy = |text| CounterSpec::busy(&words(text));
        let ns = |text| busy(text).unwrap().work;
        assert_eq!(ns("irq:softirq_entry"), CounterBody::Busy { ns: 1000 });
        assert_eq!(ns("irq:softirq_entry:5000"), CounterBody::Busy { ns: 5000 });
        assert!(busy("irq:softirq_entry:1us").is_err());
        assert!(
            busy("irq:softirq_entry:10")
                .unwrap_err()
                .to_string()
                .contains("not 10")
        );
        assert!(busy("softirq_entry").is_err());
    }
}
