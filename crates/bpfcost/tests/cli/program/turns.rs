//! Packets that take turns.

use super::{case, compile, record};
use crate::{require, tool::Tool};

/// Drops packets of more than 1,000 bytes.
const LENGTHS: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct xdp { unsigned int data, end; };
struct { int (*type)[2]; int (*max_entries)[1]; unsigned int *key; unsigned long *value; } runs SEC(".maps");
static void *(*lookup)(void *map, const void *key) = (void *)1;
SEC("xdp") int by_length(struct xdp *context) { return context->end - context->data > 1000 ? 1 : 2; }
SEC("xdp") int rarely_drops(struct xdp *context)
{
	unsigned int first = 0;
	unsigned long *count = lookup(&runs, &first);

	if (count && ++*count % 1000 == 0)
		return 0;
	return by_length(context);
}
SEC("tc") int accepts(void *context) { return 0; }
SEC("socket") int keeps(void *context) { return 1; }
"#;

#[test]
fn packets_take_turns_in_one_case() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", LENGTHS);
    let packets = "--input builtin:udp --input builtin:tcp --mix";
    let line =
        format!("program x.bpf.o --program by_length --program accepts --program keeps {packets}");
    let mixed = record(&tool, &line, 0);
    for name in [
        "by_length/udp",
        "by_length/tcp",
        "by_length/mix",
        "accepts/mix",
    ] {
        let case = case(&mixed, name);
        assert_eq!(case["status"], "ok", "{case}");
        assert!(case["net"].is_object(), "{case}");
    }
    let cases = mixed["cases"].as_array().expect("cases");
    assert!(cases.iter().all(|case| case["name"] != "keeps/mix"));
    let wrong = record(
        &tool,
        &format!("program x.bpf.o --program rarely_drops {packets} --case */mix"),
        3,
    );
    let problem = &case(&wrong, "rarely_drops/mix")["problems"][0];
    assert_eq!(problem["check"], "return codes");
    assert!(
        problem["got"]
            .as_str()
            .is_some_and(|got| got.contains("at last 0, where ")),
        "{problem}"
    );
    for (line, says) in [
        (
            "--program by_length --mix",
            &["--mix", "at least two packets", "--input"][..],
        ),
        (
            "--program keeps --input builtin:udp --input builtin:tcp --mix",
            &["socket programs"],
        ),
        (
            "--program accepts --input builtin:udp --input builtin:syn6 --mix",
            &["the protocol"],
        ),
    ] {
        tool.refuses(&format!("program x.bpf.o {line}"), 2, says);
    }
}
