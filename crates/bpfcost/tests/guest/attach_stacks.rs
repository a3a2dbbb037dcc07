//! `bpfcost stack` in a guest, at packets that go out by a module's device: by each way to attach the stack is the right
//! one, and it names the right module while modules are loaded, unloaded and replaced. The refusals say why.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use crate::{inside::Results, require};

/// Packets of each burst.
const PACKETS: u64 = 100;

/// Devices whose modules replace each other, mostly at the same address. Who sends has the name of the turn. The reader of
/// the rules is stopped meanwhile, so first packets find stale rules; then packets go out until they do not. Without IPv6
/// nobody else sends: a timer of the kernel would, in whoever it interrupts.
const SCRIPT: &str = r#"
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
send() {
    bash -c "printf $1 >/proc/\$\$/comm; exec 3>/dev/udp/10.9.0.2/9; for i in {1..100}; do echo >&3; done"
}
up() {
    modprobe $1 num${1}s=0 || return
    grep "^$1 " /proc/modules
    ip link add $1 type $1
    ip address add 10.9.0.1/24 dev $1
    ip link set $1 up
}
down() { ip link delete $1; rmmod $1; }
replace() { kill -STOP $pid; [ -z "$1" ] || down $1; up $2; send $3; kill -CONT $pid; }
until_known() {
    until sed -n "/ $2 /,/CPU/p" $name.out | grep -q "\[$1\]"; do
        kill -0 $pid || return
        sleep 0.5
        send $2
    done
}
starts modules stack skb:consume_skb --live
replace "" dummy first; until_known dummy first
replace dummy ifb second; until_known ifb second
replace ifb dummy third; until_known dummy third
replace dummy ifb late
ends
down ifb

up dummy
by() { starts "$@" --comm $1 --json; send $name; ends; }
links=4 by kprobe stack dummy_xmit ip_output --attach kprobe
by fentry stack dummy_xmit --attach fentry
by tracepoint stack net:net_dev_start_xmit --attach tracepoint
by helper stack dummy_xmit --helper

says forbidden stack do_syscall_64 --attach kprobe --helper
says notrace stack do_syscall_64 --attach fentry --helper
grep -ls '^prog_id' /proc/*/fdinfo/* >left
cat /sys/kernel/debug/kprobes/list >>left
echo 2 >/proc/sys/kernel/kptr_restrict
says hidden stack ip_output
echo 0 >/proc/sys/kernel/kptr_restrict
echo confidentiality >/sys/kernel/security/lockdown
says lockdown stack ip_output
"#;

/// An event of `--live`.
#[derive(Debug, Default)]
struct Event<'a> {
    command: &'a str,
    frames: Vec<&'a str>,
    is_stale: bool,
}

impl Event<'_> {
    /// Modules that its frames are in.
    fn modules(&self) -> Vec<&str> {
        let in_module = self.frames.iter().filter_map(|frame| frame.split_once('['));
        in_module
            .map(|(_, module)| module.trim_end_matches(']'))
            .collect()
    }
}

fn events(text: &str) -> Vec<Event<'_>> {
    let head = Regex::new(r"^ *[0-9.]+  CPU [0-9]+ +(.*) [0-9]+/[0-9]+$").expect("a pattern");
    let mut events: Vec<Event<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(groups) = head.captures(line) {
            events.push(Event {
                command: groups.get(1).expect("a name").as_str(),
                ..Event::default()
            });
            continue;
        }
        let event = events.last_mut().expect("an event");
        match line.trim() {
            end if end.contains("modules came or went") => event.is_stale = true,
            end if end.starts_with('…') => {}
            frame => event.frames.push(frame),
        }
    }
    events
}

/// A number of the summary, 0 where it is not there.
fn account(summary: &str, words: &str) -> u64 {
    let number = Regex::new(&format!("([0-9,]+) {words}")).expect("a pattern");
    let groups = number.captures(summary);
    groups.map_or(0, |groups| {
        groups[1].replace(',', "").parse().expect("a number")
    })
}

fn assert_right_modules(results: &Results) {
    let events = events(results.answer("modules"));
    let summary = results.file("modules.err");
    let (all, reported) = (account(summary, "events"), account(summary, "reported"));
    assert_eq!(all, reported + account(summary, "lost"), "{summary}");
    assert_eq!(events.len() as u64, reported, "{summary}");
    let stale = events.iter().filter(|event| event.is_stale).count() as u64;
    assert!(
        account(summary, "were taken while modules") >= stale,
        "{summary}"
    );
    let is_late = |event: &&Event<'_>| event.command == "late";
    assert!(
        events.iter().filter(is_late).count() as u64 >= PACKETS,
        "{summary}"
    );
    assert!(
        events.iter().filter(is_late).all(|event| event.is_stale),
        "{summary}"
    );
    assert!(stale >= 4 * PACKETS, "{summary}");
    let of = BTreeMap::from([
        ("first", "dummy"),
        ("second", "ifb"),
        ("third", "dummy"),
        ("late", "ifb"),
    ]);
    let mut right = BTreeMap::<&str, u64>::new();
    for event in &events {
        let Some(module) = of.get(event.command) else {
            continue;
        };
        let modules = event.modules();
        assert!(modules.iter().all(|one| one == module), "{event:?}");
        if event.is_stale || modules.is_empty() {
            continue;
        }
        let function = format!("{module}_xmit+");
        assert!(
            event
                .frames
                .iter()
                .any(|frame| frame.starts_with(&function)),
            "{event:?}"
        );
        let outermost = event.frames.last().expect("a frame");
        assert!(outermost.starts_with("entry_"), "{event:?}");
        *right.entry(event.command).or_default() += 1;
    }
    for turn in ["first", "second", "third"] {
        assert!(
            right.get(turn).is_some_and(|count| *count > 0),
            "{right:?}: {summary}"
        );
    }
}

/// Every packet is an event whose stack goes through all of `functions`, the innermost first.
#[track_caller]
fn assert_stacks(results: &Results, name: &str, events: u64, functions: &[&str]) {
    let profile: Value = serde_json::from_str(results.answer(name)).expect("JSON");
    let total = |name: &str| profile["totals"][name].as_u64().expect("a count");
    assert_eq!(
        (total("events"), total("counted"), total("lost")),
        (events, events, 0),
        "{name}"
    );
    assert_eq!((total("ended_early"), total("stale")), (0, 0), "{name}");
    let mut sum = 0;
    for stack in profile["stacks"].as_array().expect("stacks") {
        let frames = stack["frames"].as_array().expect("frames").iter();
        let mut names = frames.map(|frame| frame["name"].as_str().expect("a name"));
        for function in functions {
            assert!(
                names.any(|name| name.starts_with(function)),
                "{name}: no {function} in {stack}"
            );
        }
        sum += stack["count"].as_u64().expect("a count");
    }
    assert_eq!(sum, events, "{name}");
}

#[test]
fn stacks_go_through_the_right_module_by_each_way_to_attach() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let results = Results::measure(kernel, SCRIPT);
    eprintln!("{}", results.file("said"));
    assert_right_modules(&results);
    let call = ["udp_sendmsg", "do_syscall_64", "entry_SYSCALL_64"];
    let with = |first: &[&'static str]| [first, &call[..]].concat();
    assert_stacks(&results, "kprobe", 2 * PACKETS, &with(&["ip_"]));
    let through = with(&["dummy_xmit", "dev_hard_start_xmit"]);
    assert_stacks(&results, "fentry", PACKETS, &through);
    assert_stacks(&results, "helper", PACKETS, &through);
    let through = with(&["dev_hard_start_xmit"]);
    assert_stacks(&results, "tracepoint", PACKETS, &through);
    results.refuses(
        "forbidden",
        4,
        &["do_syscall_64", "the kernel forbids it", "calls it"],
    );
    results.refuses("notrace", 4, &["do_syscall_64", "notrace", "calls it"]);
    assert_eq!(results.file("left"), "", "nothing stays attached");
    results.refuses(
        "hidden",
        4,
        &["hides the addresses", "sysctl kernel.kptr_restrict=1"],
    );
    results.refuses("lockdown", 4, &["lockdown", "lockdown=confidentiality"]);
}
