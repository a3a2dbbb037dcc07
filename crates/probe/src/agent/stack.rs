//! `builtin:stack:KIND:EVENT:WALKER:DELIVERY`: takes the kernel's stack at each event, whatever process it comes in.
//! Source: study 000, whose tool took it at `ip_rcv` by the kernel's helper or by hand, and printed it.
//!
//! KIND is `raw_tp` (EVENT is a tracepoint, `category:name`) or `kprobe` (a function). WALKER is `helper`
//! (`bpf_get_stack()`) or `manual` (`unwind.bpf.h`). DELIVERY: `drop` writes the stack into a buffer that no one reads,
//! `print` sends it to this process, which prints the names of its functions into /dev/null, and `count` (`manual`
//! only) counts equal stacks in the kernel.
//!
//! Each window proves itself: every event was delivered or lost, as many stacks were read or counted as the program
//! says, and each has frames.

use std::{cell::RefCell, rc::Rc, thread::sleep, time::Duration};

use anyhow::{Result, bail};
use bpfcost_bpf::{
    Feature,
    attach::AttachMethod,
    real_time,
    stack_tracer::{StackDelivery, StackTracer, StackWalker, TracedStacks},
};

use super::{Agent, AgentInfo, READ_INTERVAL};
use crate::{Arguments, BuiltIn, PrintedStacks, Runs, StackPrinter, WindowCounts};
use bpfcost_model::Problem;
use bpfcost_process::RunContext;
use bpfcost_text::suggest;

/// The entry of `builtin:stack`.
pub(crate) const AGENT: BuiltIn = BuiltIn {
    form: "stack:KIND:EVENT:WALKER:DELIVERY",
    needs: |arguments| Ok(StackSpec::parse(arguments)?.needs()),
    absent: |arguments| StackSpec::parse(arguments)?.absent(),
    switch_s: 0.1,
    runs: Runs::Agent(open),
};

const KINDS: [(&str, AttachMethod); 2] = [
    ("raw_tp", AttachMethod::RawTp),
    ("kprobe", AttachMethod::Kprobe),
];
const WALKERS: [(&str, StackWalker); 2] = [
    ("helper", StackWalker::Helper),
    ("manual", StackWalker::Manual),
];
const DELIVERIES: [(&str, StackDelivery); 3] = [
    ("drop", StackDelivery::Drop),
    ("print", StackDelivery::Ring),
    ("count", StackDelivery::Count),
];

/// Whose stacks, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StackSpec {
    method: AttachMethod,
    event: String,
    walker: StackWalker,
    delivery: StackDelivery,
}

impl StackSpec {
    fn parse(arguments: &Arguments) -> Result<Self> {
        let [kind, event @ .., walker, delivery] = arguments else {
            bail!(USAGE);
        };
        let method = one_of("kind", &KINDS, kind)?;
        let walker = one_of("walker", &WALKERS, walker)?;
        let delivery = one_of("delivery", &DELIVERIES, delivery)?;
        let words = if method.takes_tracepoints() { 2 } else { 1 };
        if event.len() != words || event.iter().any(String::is_empty) {
            bail!(USAGE);
        }
        if (walker, delivery) == (StackWalker::Helper, StackDelivery::Count) {
            bail!("builtin:stack does not count stacks of the helper\n  Use manual:count");
        }
        Ok(StackSpec {
            method,
            event: event.join(":"),
            walker,
            delivery,
        })
    }

    fn needs(&self) -> Vec<Feature> {
        StackTracer::needs(self.method, self.walker)
    }

    fn absent(&self) -> Result<Option<String>> {
        Ok(StackTracer::absent(self.method, &self.event)?)
    }
}

const USAGE: &str = "builtin:stack needs a kind (raw_tp or kprobe), an event, a walker (helper or manual) and a \
                     delivery (drop, print or count), as in\n  \
                     builtin:stack:raw_tp:net:netif_receive_skb:manual:drop or builtin:stack:kprobe:ip_rcv:helper:print";

/// The value of that name.
fn one_of<T: Copy>(what: &str, all: &[(&'static str, T)], name: &str) -> Result<T> {
    match all.iter().find(|(one, _)| *one == name) {
        Some((_, value)) => Ok(*value),
        None => {
            let names: Vec<&str> = all.iter().map(|(one, _)| *one).collect();
            bail!(
                "builtin:stack has no {what} {name}{}\n  Use {}",
                suggest(name, names.iter().copied()),
                names.join(", ")
            )
        }
    }
}

struct StackAgent {
    tracer: StackTracer,
    delivery: StackDelivery,
    printed: Rc<RefCell<StackPrinter>>,
}

fn open(arguments: &Arguments) -> Result<Box<dyn Agent>> {
    let spec = StackSpec::parse(arguments)?;
    let print = spec.delivery == StackDelivery::Ring;
    if print {
        // Otherwise server and client keep it from the CPUs until the ring buffer is full.
        real_time();
    }
    let printed = Rc::new(RefCell::new(StackPrinter::open()?));
    let into = Rc::clone(&printed);
    let tracer = StackTracer::load(
        spec.method,
        &spec.event,
        (spec.walker, spec.delivery),
        move |addresses| into.borrow_mut().print(addresses),
    )?;
    if print {
        // The program that was just loaded has a symbol too.
        printed.borrow_mut().read_symbols()?;
    }
    Ok(Box::new(StackAgent {
        tracer,
        delivery: spec.delivery,
        printed,
    }))
}

impl Agent for StackAgent {
    fn loaded(&self) -> Result<AgentInfo> {
        Ok(AgentInfo {
            idle: self.delivery != StackDelivery::Ring,
            ..AgentInfo::default()
        })
    }

    fn attach(&mut self, _context: &RunContext) -> Result<()> {
        self.tracer.attach()?;
        // No record came before that: the ring buffer was empty when it was detached last.
        self.printed.borrow_mut().take_counts()?;
        Ok(())
    }

    fn consume(&mut self, timeout: Duration) -> Result<()> {
        self.tracer.take()?;
        sleep(timeout.min(READ_INTERVAL));
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts> {
        let traced = self.tracer.detach()?;
        let printed = self.printed.borrow_mut().take_counts()?;
        if let Some(problem) = problem(self.delivery, &traced, printed) {
            return Err(problem.into());
        }
        let mut counts = vec![
            ("delivered", traced.delivered),
            ("frames_per_stack", mean(traced.frames, traced.delivered)),
        ];
        if self.delivery == StackDelivery::Ring {
            counts.push(("printed", printed.stacks));
        }
        if traced.stale > 0 {
            counts.push(("stale", traced.stale));
        }
        Ok(WindowCounts {
            hits: Some(traced.events),
            lost: traced.lost + traced.missed,
            counts: counts
                .into_iter()
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
        })
    }
}

fn mean(sum: u64, of: u64) -> u64 {
    (sum + of / 2) / of.max(1)
}

/// Contradictions in a window.
fn problem(
    delivery: StackDelivery,
    traced: &TracedStacks,
    printed: PrintedStacks,
) -> Option<Problem> {
    let differ = |check: &str, expected: u64, got: u64, detail: &str| {
        (expected != got).then(|| Problem {
            check: check.to_owned(),
            expected: expected.to_string(),
            got: got.to_string(),
            detail: detail.to_owned(),
        })
    };
    let accounted = traced.delivered + traced.lost;
    let account = differ(
        "stacks delivered and lost",
        traced.events,
        accounted,
        "the program did not account for each of its runs",
    );
    let arrived = match delivery {
        StackDelivery::Drop => None,
        StackDelivery::Ring => differ(
            "stacks read",
            traced.delivered,
            printed.stacks,
            "the program submitted another number of records",
        )
        .or_else(|| {
            differ(
                "frames read",
                traced.frames,
                printed.frames,
                "the records have another number of addresses than the program wrote",
            )
        }),
        // Those that ended too early are in the tree too.
        StackDelivery::Count => {
            (traced.in_tree < traced.delivered || traced.in_tree > traced.events).then(|| Problem {
                check: "stacks counted".to_owned(),
                expected: format!("{} to {}", traced.delivered, traced.events),
                got: traced.in_tree.to_string(),
                detail: "the tree of stacks has another number than the program delivered"
                    .to_owned(),
            })
        }
    };
    let frames = (traced.frames < traced.delivered).then(|| Problem {
        check: "frames".to_owned(),
        expected: format!("at least {}, one of each stack", traced.delivered),
        got: traced.frames.to_string(),
        detail: "stacks without frames were delivered".to_owned(),
    });
    let none = (traced.events > 0 && traced.delivered == 0).then(|| Problem {
        check: "stacks delivered".to_owned(),
        expected: "at least 1".to_owned(),
        got: format!("0 of {}", traced.events),
        detail: "every stack was lost, so that their cost is not known".to_owned(),
    });
    account.or(arrived).or(frames).or(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StackSpec> {
        let words: Vec<String> = text.split(':').map(str::to_owned).collect();
        StackSpec::parse(&words)
    }

    #[test]
    fn arguments_are_read() {
        let spec = parse("raw_tp:net:netif_receive_skb:helper:print").unwrap();
        assert_eq!(
            spec,
            StackSpec {
                method: AttachMethod::RawTp,
                event: "net:netif_receive_skb".to_owned(),
                walker: StackWalker::Helper,
                delivery: StackDelivery::Ring,
            }
        );
        let spec = parse("kprobe:ip_rcv:manual:count").unwrap();
        assert_eq!(spec.method, AttachMethod::Kprobe);
        assert_eq!(spec.event, "ip_rcv");
        assert_eq!(spec.walker, StackWalker::Manual);
        assert_eq!(spec.delivery, StackDelivery::Count);
    }

    #[test]
    fn wrong_arguments_are_explained() {
        let error = |text| parse(text).unwrap_err().to_string();
        assert!(error("kprobes:ip_rcv:helper:drop").contains("did you mean kprobe?"));
        assert!(error("kprobe:ip_rcv:help:drop").contains("Use helper, manual"));
        assert!(error("kprobe:ip_rcv:manual:prin").contains("did you mean print?"));
        assert!(error("kprobe:ip_rcv:helper:count").contains("manual:count"));
        for text in [
            "raw_tp:netif_receive_skb:helper:drop",
            "kprobe:net:ip_rcv:helper:drop",
            "kprobe::helper:drop",
            "kprobe:helper:drop",
            "kprobe",
        ] {
            assert!(error(text).contains("needs a kind"), "{text}");
        }
    }

    fn traced() -> TracedStacks {
        TracedStacks {
            events: 100,
            delivered: 97,
            lost: 3,
            frames: 970,
            ..TracedStacks::default()
        }
    }

    const PRINTED: PrintedStacks = PrintedStacks {
        stacks: 97,
        frames: 970,
        bytes: 9700,
    };

    fn check(delivery: StackDelivery, traced: TracedStacks, printed: PrintedStacks) -> String {
        let problem = problem(delivery, &traced, printed);
        problem.map_or(String::new(), |problem| problem.check)
    }

    #[test]
    fn right_accounts_are_no_problem() {
        let none = PrintedStacks::default();
        assert_eq!(check(StackDelivery::Drop, traced(), none), "");
        assert_eq!(check(StackDelivery::Ring, traced(), PRINTED), "");
        for in_tree in [97, 100] {
            let counted = TracedStacks {
                in_tree,
                ..traced()
            };
            assert_eq!(check(StackDelivery::Count, counted, none), "");
        }
    }

    #[test]
    fn wrong_accounts_are_problems() {
        let missing = TracedStacks {
            lost: 2,
            ..traced()
        };
        for delivery in [
            StackDelivery::Drop,
            StackDelivery::Ring,
            StackDelivery::Count,
        ] {
            assert_eq!(
                check(delivery, missing, PRINTED),
                "stacks delivered and lost"
            );
        }
        let (unread, short) = (
            PrintedStacks {
                stacks: 96,
                ..PRINTED
            },
            PrintedStacks {
                frames: 969,
                ..PRINTED
            },
        );
        assert_eq!(check(StackDelivery::Ring, traced(), unread), "stacks read");
        assert_eq!(check(StackDelivery::Ring, traced(), short), "frames read");
        for in_tree in [0, 96, 101] {
            let counted = TracedStacks {
                in_tree,
                ..traced()
            };
            assert_eq!(
                check(StackDelivery::Count, counted, PRINTED),
                "stacks counted"
            );
        }
        let empty = TracedStacks {
            frames: 96,
            ..traced()
        };
        assert_eq!(check(StackDelivery::Drop, empty, PRINTED), "frames");
        let all_lost = TracedStacks {
            events: 100,
            lost: 100,
            ..TracedStacks::default()
        };
        let none = PrintedStacks::default();
        for delivery in [
            StackDelivery::Drop,
            StackDelivery::Ring,
            StackDelivery::Count,
        ] {
            assert_eq!(check(delivery, all_lost, none), "stacks delivered");
        }
    }
}
