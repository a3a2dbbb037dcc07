//! Inputs of programs beside packets of the usual size: a type, a context, a jumbo frame.

use super::{case, compile, record};
use crate::{require, tool::Tool};

/// Sections that libbpf doesn't know; programs whose answer depends on the context; one on fragments.
const SOURCE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct skb { unsigned int len, pkt_type, mark, queue_mapping, protocol, vlan[3], priority; };
struct frame { unsigned int data, data_end, data_meta, ingress_ifindex, rx_queue_index; };
SEC("tc") int marked(struct skb *skb) { return skb->mark == 0x42 && skb->priority == 7 ? 0 : 2; }
SEC("xdp") int from_first(struct frame *frame) { return frame->ingress_ifindex == 1 ? 2 : 1; }
static long (*bytes)(struct frame *frame) = (void *)188;
SEC("xdp.frags") int counts_bytes(struct frame *frame) { return bytes(frame) == 9014 ? 2 : 1; }
"#;
const UNNAMED: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
SEC("grow_parse") int parse(void *context) { return 2; }
"#;

#[test]
fn a_section_that_tells_no_type_takes_one() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", UNNAMED);
    let said = tool.says("program x.bpf.o --dry-run");
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.err
            .contains("grow_parse, whose name does not tell its type"),
        "{said:?}"
    );
    assert!(said.err.contains("--type xdp"), "{said:?}");
    let of_xdp = record(&tool, "program x.bpf.o --type xdp", 0);
    let parse = case(&of_xdp, "parse/udp");
    assert_eq!(parse["observed"]["returned"], "XDP_PASS", "{parse}");
    let of_tc = record(&tool, "program x.bpf.o --type tc", 0);
    assert_eq!(
        case(&of_tc, "parse/udp")["observed"]["returned"],
        "TC_ACT_SHOT"
    );
    compile(&tool, "named", SOURCE);
    for (line, says) in [
        ("program named.bpf.o --type xdp", "tell their types"),
        ("program x.bpf.o --type kprobe", "xdp, tc, cgroup_skb"),
    ] {
        let said = tool.says(line);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(says), "{said:?}");
    }
}

#[test]
fn packets_bring_what_the_context_says() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", SOURCE);
    let programs = "program x.bpf.o --program marked --program from_first";
    let without = record(&tool, programs, 0);
    let context = "--context mark=0x42,priority=7 --context ingress_ifindex=1,rx_queue_index=0";
    let with = record(&tool, &format!("{programs} {context}"), 0);
    let returned = |record, name| case(record, name)["observed"]["returned"].clone();
    assert_eq!(returned(&without, "marked/udp"), "TC_ACT_SHOT");
    assert_eq!(returned(&with, "marked/udp"), "TC_ACT_OK");
    assert_eq!(returned(&with, "from_first/udp"), "XDP_PASS");
    let about = case(&with, "marked/udp")["about"].as_str().expect("words");
    assert!(about.contains("mark=66"), "{about}");
    let given = |record| &case(record, "marked/udp")["factors"]["given"];
    assert_ne!(given(&without), given(&with));
    // A person reads it beside the cost.
    tool.write("r.json", with.to_string());
    tool.answers("report r.json -o r.md");
    let page = std::fs::read_to_string(tool.path("r.md")).expect("a page");
    assert!(
        page.contains(r"TC\_ACT\_OK") && page.contains("returned"),
        "{page}"
    );
    for (context, says) in [
        ("len=3", "there is no field len"),
        ("mark=0x1ffffffff", "0 to 4294967295"),
        ("mark", "FIELD=VALUE"),
    ] {
        let said = tool.says(&format!("{programs} --context {context}"));
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(
            said.err.contains("--context") && said.err.contains(says),
            "{said:?}"
        );
    }
    let said = tool.says("program x.bpf.o --program from_first --context mark=1");
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.err.contains("xdp programs take ingress_ifindex"),
        "{said:?}"
    );
    let absent = "program x.bpf.o --program marked --context ifindex=77777 --quick";
    let said = tool.says(absent);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("--context"), "{said:?}");
}

#[test]
fn a_jumbo_frame_is_measured_in_fragments() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", SOURCE);
    let jumbo = "5a".repeat(9014);
    let line = format!("program x.bpf.o --input {jumbo} --program");
    let measured = record(&tool, &format!("{line} counts_bytes"), 0);
    let counts = case(&measured, "counts_bytes/packet");
    assert_eq!(counts["status"], "ok", "{counts}");
    assert_eq!(counts["observed"]["returned"], "XDP_PASS", "{counts}");
    let said = tool.says(&format!("{line} from_first"));
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.err.contains("9014 bytes") && said.err.contains("xdp.frags"),
        "{said:?}"
    );
}

/// The largest packets that programs without fragments take, as the kernel does.
#[test]
fn the_largest_packets_are_those_of_the_kernel() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", SOURCE);
    for (program, bytes) in [("marked", 3712), ("from_first", 3520)] {
        let packet = "5a".repeat(bytes);
        let line = format!("program x.bpf.o --program {program} --input {packet}");
        let measured = record(&tool, &line, 0);
        let name = format!("{program}/packet");
        assert_eq!(case(&measured, &name)["status"], "ok");
    }
}
