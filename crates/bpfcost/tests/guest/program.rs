//! A person's own programs in guests: the object travels with the plan, and two boots count the same.

use std::process::Command;

use bpfcost_model::HotSpots;

use crate::{
    kept::valid_record,
    require,
    tool::{Tool, said},
    visit::{assert_nothing_left, command, says},
};

const SOURCE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
unsigned long runs;
static long (*adjust_head)(void *context, int bytes) = (void *)44;
static long (*adjust_room)(void *skb, int bytes, unsigned int mode, unsigned long flags) = (void *)50;
const volatile int verdict = 1;
SEC("xdp") int counts(void *context) { runs++; return 2; }
SEC("xdp") int decides(void *context) { return verdict; }
SEC("xdp") int pushes(void *context) { return adjust_head(context, -20) ? 0 : 3; }
SEC("tc") int encapsulates(void *skb) { return adjust_room(skb, 20, 1, 0) ? 2 : 0; }
"#;

/// One program that a loader's map decides, one that makes a tail call, one that looks at the length.
const LOADED: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct xdp { unsigned int data, end; };
struct { int (*type)[2]; int (*max_entries)[1]; unsigned int *key; unsigned long *value; } verdicts SEC(".maps");
struct { int (*type)[3]; int (*max_entries)[1]; int (*key_size)[4]; int (*value_size)[4]; } next SEC(".maps");
static void *(*lookup)(void *map, const void *key) = (void *)1;
static long (*tail_call)(void *context, void *map, unsigned int slot) = (void *)12;
unsigned long runs;
SEC("xdp") int by_length(struct xdp *context) { return context->end - context->data > 1000 ? 1 : 2; }
SEC("xdp") int dispatches(void *context) { runs++; tail_call(context, &next, 0); return 0; }
SEC("xdp") int judges(void *context)
{
	unsigned int first = 0;
	unsigned long *verdict = lookup(&verdicts, &first);

	return verdict ? *verdict : 0;
}
"#;

/// A map that takes more memory than a guest has.
const LARGE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct { int (*type)[2]; int (*max_entries)[500000000]; int (*key_size)[4]; int (*value_size)[8]; } large SEC(".maps");
static void *(*lookup)(void *map, const void *key) = (void *)1;
SEC("xdp") int finds(void *context)
{
	unsigned int first = 0;

	return lookup(&large, &first) ? 2 : 1;
}
"#;

fn compile(tool: &Tool, source: &str) {
    tool.write("x.c", source);
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let done = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-c"])
        .args([tool.path("x.c"), "-o".into(), tool.path("x.bpf.o")])
        .status();
    assert!(done.expect("clang runs").success());
}

/// The counts of a run in a guest of its own, by case.
fn counts(kernel: &str, options: &str) -> Vec<(String, f64)> {
    let tool = Tool::new();
    compile(&tool, SOURCE);
    let said = says(
        &tool,
        &format!("program x.bpf.o --on exact:{kernel} --quick --set verdict=3 {options}"),
        "{}",
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("Verification and memory"), "{}", said.out);
    assert_nothing_left(&tool);
    let record = valid_record(&tool);
    let mut cases = record.cases.iter();
    let decides = cases.find(|case| case.name == "decides/udp");
    let observed = decides.and_then(|case| case.observed.as_ref());
    assert_eq!(observed.expect("what it does")["code"], 3, "--set");
    let count = |case: &bpfcost_record::CaseRecord| {
        let raw = case.raw.as_ref().expect("a count");
        (case.name.clone(), raw.value)
    };
    record.cases.iter().map(count).collect()
}

#[test]
fn a_program_counts_the_same_in_two_boots() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let first = counts(kernel, "");
    assert_eq!(first.len(), 4 + 4 + 2);
    assert_eq!(
        counts(kernel, "--hot-spots"),
        first,
        "tracing changes nothing"
    );
}

/// A loader, tail calls and packets in turn; what was recorded there holds here too.
#[test]
fn maps_and_packets_are_the_same_in_a_guest() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    compile(&tool, LOADED);
    let loader = "sh -c \"PATH=$PATH:/usr/sbin bpftool map update pinned $BPFCOST_MAPS/verdicts key 0 0 0 0 \
                  value 3 0 0 0 0 0 0 0\"";
    let run = |line: &str| {
        let mut command = command(
            &tool,
            &format!(
                "program x.bpf.o --quick --input builtin:udp --input builtin:tcp --mix --also next[0]=by_length {line}"
            ),
        );
        said(&command.args(["--setup", loader]).output().expect("it runs"))
    };
    let there = run(&format!(
        "--on exact:{kernel} --out x.json --record-expected e.json --hot-spots"
    ));
    assert_eq!(there.code, Some(0), "{there:?}");
    assert_nothing_left(&tool);
    let record = valid_record(&tool);
    let mut warnings = record.warnings.iter();
    let warning = warnings.find(|one| one.code == "no-hot-spots");
    let text = &warning.expect("why one has none is said").text;
    assert!(
        text.starts_with("no hot spots of dispatches: it makes tail calls"),
        "{text}"
    );
    let observed = |name: &str| {
        let case = record
            .cases
            .iter()
            .find(|case| case.name == name)
            .expect(name);
        assert!(case.net.is_some(), "{name}");
        case.observed.clone().expect(name)
    };
    assert_eq!(observed("judges/udp")["code"], 3);
    assert_eq!(observed("by_length/mix")["code"], 1);
    let dispatched = observed("dispatches/tcp");
    assert_eq!(
        (&dispatched["code"], &dispatched["window"]),
        (&1.into(), &16.into())
    );
    assert_eq!(dispatched["per_run"], serde_json::json!({ "runs": 1 }));
    let here = run("--expect e.json --out y.json");
    assert_eq!(here.code, Some(0), "{here:?}");
}

/// A line of each kind: a helper, a loop, a function that is called.
const HOT: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct { int (*type)[1]; int (*max_entries)[64]; unsigned int *key; unsigned long *value; } table SEC(".maps");
static void *(*lookup)(void *map, const void *key) = (void *)1;
static long (*update)(void *map, const void *key, const void *value, unsigned long flags) = (void *)2;
static unsigned long (*now)(void) = (void *)5;
static long (*loop)(unsigned int times, void *function, void *context, unsigned long flags) = (void *)181;
static __attribute__((noinline)) unsigned int triple(unsigned int value)
{
	return value * 3 + 1;
}
static long turn(unsigned int number, unsigned int *total)
{
	*total += triple(number);
	return 0;
}
SEC("xdp") int hot(void *context)
{
	unsigned int key = 7, total = 0;
	unsigned long one = 1;

	if (!now())
		return 1;
	if (!lookup(&table, &key))
		update(&table, &key, &one, 0);
	loop(20, turn, &total, 0);
	return total > 5 ? 2 : 1;
}
SEC("xdp") int cold(void *context) { return 2; }
"#;

/// A run is traced to as many instructions as it was counted to take.
#[test]
fn hot_spots_are_the_instructions_of_a_run() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    compile(&tool, HOT);
    let line = format!("program x.bpf.o --quick --on exact:{kernel} --hot-spots");
    let said = says(&tool, &line, "{}");
    assert_eq!(said.code, Some(0), "{said:?}");
    let record = valid_record(&tool);
    for words in [
        "Hot spots",
        "x.c:15",
        "*total += triple(number);",
        "map_lookup_elem",
    ] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    let mut of_calls = Vec::new();
    for name in ["hot/udp", "cold/udp"] {
        let mut cases = record.cases.iter();
        let traced = cases.find(|case| case.name == name).expect(name).clone();
        let spots = traced.observed.expect("what it does")["hot_spots"].clone();
        let spots: HotSpots = serde_json::from_value(spots).expect("hot spots");
        let of_lines: u64 = spots.lines.iter().map(|line| line.own + line.called).sum();
        assert_eq!(of_lines, spots.instructions);
        let called: u64 = spots.calls.iter().map(|call| call.instructions).sum();
        assert_eq!(
            called,
            spots.lines.iter().map(|line| line.called).sum::<u64>()
        );
        let net = traced.net.and_then(|net| net.value).expect("what it costs");
        // The floor calls a function too, which returns at once.
        of_calls.push(spots.instructions - net as u64);
        if name == "hot/udp" {
            let line = |text: &str| {
                let mut lines = spots.lines.iter();
                lines
                    .find(|line| line.text.starts_with(text))
                    .expect(text)
                    .clone()
            };
            assert_eq!(line("*total += ").own % 20, 0, "a loop of 20 turns");
            assert_eq!(line("return value * 3").own % 20, 0);
            let lookup = line("if (!lookup(");
            assert!(lookup.called > 20, "{lookup:?}");
            let calls: Vec<&str> = spots.calls.iter().map(|call| &*call.name).collect();
            // The second is a call alone, with nothing of it in place of the call.
            assert_eq!(calls, ["map_lookup_elem", "ktime_get_ns"]);
        }
    }
    assert_eq!(of_calls[0], of_calls[1]);
    assert!((1..16).contains(&of_calls[0]), "{of_calls:?}");
}

/// The kernel refuses at once what is larger than its memory. What nearly fits may be refused, or end the tool.
#[test]
fn a_guest_has_too_little_memory_for_a_map() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    compile(&tool, LARGE);
    let line = format!("program x.bpf.o --quick --on vm:{kernel}");
    let said = says(&tool, &line, "{}");
    assert_eq!(said.code, Some(4), "{said:?}");
    for words in ["not enough memory for its maps", "'large'"] {
        assert!(said.out.contains(words), "{said:?}");
    }
}
