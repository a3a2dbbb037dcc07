//! Object files that libbpf takes as they are, that it takes once changed in memory, and that it can't take.

use std::{fs, process::Command};

use bpfcost_bpf::{
    Error,
    program::{LoopForm, ObjectFile, ProgramKind},
};
use bpfcost_compile::clang;
use bpfcost_uprobe::object::with_known_pins;

use crate::lab::prepare;
use crate::require;

const HEAD: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
"#;
const PASSES: &str = r#"SEC("xdp") int passes(void *context) { return 2; }"#;

/// A source compiled with these words for the compiler.
fn compiled(source: &str, words: &[&str]) -> ObjectFile {
    ObjectFile::new("x.bpf.o".as_ref(), bytes(source, words))
}

/// The same, as the compiler wrote it.
fn bytes(source: &str, words: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let (text, object) = (folder.path().join("x.c"), folder.path().join("x.bpf.o"));
    fs::write(&text, format!("{HEAD}{source}")).expect("a file");
    let compiler = Command::new(clang())
        .args(words)
        .args(["-O2", "-c", "-o"])
        .args([&object, &text])
        .status();
    assert!(compiler.expect("clang runs").success());
    fs::read(&object).expect("it can be read")
}

fn typed(source: &str) -> ObjectFile {
    compiled(source, &["-target", "bpf", "-g"])
}

/// An object whose symbol table is none, as after `llvm-strip`.
fn without_symbols(object: &ObjectFile) -> ObjectFile {
    let mut bytes = object.bytes().to_vec();
    let half =
        |bytes: &[u8], at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let mut sections = [0; 8];
    sections.copy_from_slice(&bytes[40..48]);
    let (sections, size) = (u64::from_le_bytes(sections) as usize, half(&bytes, 58));
    for number in 0..half(&bytes, 60) {
        let kind = &mut bytes[sections + number * size + 4];
        // SHT_SYMTAB, SHT_NULL
        *kind = if *kind == 2 { 0 } else { *kind };
    }
    ObjectFile::new(object.path(), bytes)
}

#[test]
fn what_libbpf_cannot_take_has_its_own_headline() {
    let plain = ["-target", "bpf"];
    let legacy = r#"SEC("maps") struct { int type, key, value, entries; } old = {2, 4, 8, 1};"#;
    let template = r#"
        template <typename T> __attribute__((noinline)) int twice(T *one) { return *one * 2; }
        extern "C" SEC("xdp") int passes(int *context) { return twice(context); }"#;
    let outside = r#"extern const int CONFIG_HZ SEC(".kconfig");
        SEC("xdp") int passes(void *context) { return CONFIG_HZ; }"#;
    for (object, says) in [
        (
            compiled(PASSES, &["-target", "bpfeb", "-g"]),
            "for big-endian machines",
        ),
        (without_symbols(&typed(PASSES)), "llvm-strip -g"),
        (
            compiled(&format!("{legacy}{PASSES}"), &plain),
            "in the section `maps`",
        ),
        (
            compiled(template, &["-target", "bpf", "-x", "c++"]),
            "in the section .text._Z",
        ),
        (compiled(outside, &plain), "extern CONFIG_HZ has no type"),
    ] {
        let error = object.programs().expect_err(says);
        let is_input = matches!(error, Error::UserObject { is_input: true, .. });
        assert!(is_input && error.to_string().contains(says), "{error}");
        assert!(!error.to_string().contains("not a BPF object"), "{error}");
    }
    let host = ObjectFile::read("/proc/self/exe".as_ref()).expect("this test");
    let error = host.programs().expect_err("no BPF").to_string();
    assert!(error.contains("not a BPF object"), "{error}");
}

/// Static programs, as Cilium has them, run.
#[test]
fn static_programs_are_taken() {
    if !require::host() {
        return;
    }
    let object = typed(
        r#"
        static __attribute__((noinline)) int next(int code) { asm volatile("" : "+r"(code)); return code + 1; }
        static SEC("xdp/entry") int passes(void *context) { return next(1); }"#,
    );
    let programs = object.programs().expect("its programs");
    assert_eq!(programs.len(), 1);
    assert_eq!(programs[0].kind, Ok(ProgramKind::Xdp));
    assert!(!programs[0].is_named);
    assert_eq!(prepare(&object, "passes").oracle.code, 2);
}

/// A way to pin a map that only its own loader has, as Cilium's 16: the map is not pinned, and its 16 entries are there.
#[test]
fn maps_whose_pinning_libbpf_does_not_know_are_taken() {
    if !require::host() {
        return;
    }
    let source = r#"
        struct {
            int (*pinning)[16]; int (*max_entries)[16]; int (*key_size)[4]; int (*value_size)[4]; int (*type)[2];
        } table SEC(".maps");
        static void *(*lookup)(void *map, const void *key) = (void *)1;
        SEC("xdp") int finds(void *context) {
            unsigned int last = 15, none = 16;
            return lookup(&table, &last) && !lookup(&table, &none) ? 2 : 0;
        }"#;
    let mut written = bytes(source, &["-target", "bpf", "-g"]);
    let object = ObjectFile::new("x.bpf.o".as_ref(), written.clone());
    assert_eq!(prepare(&object, "finds").oracle.code, 2);
    assert_ne!(with_known_pins(written.clone()), written);
    // A damaged file ends nothing.
    for at in 0..written.len() {
        written[at] ^= 0xff;
        assert_eq!(with_known_pins(written.clone()).len(), written.len());
        written[at] ^= 0xff;
    }
}

/// A section that libbpf doesn't know is of the type that its name tells, or that is given; so are those that it calls.
#[test]
fn programs_of_unknown_sections_have_the_type_that_is_given() {
    if !require::host() {
        return;
    }
    let object = typed(
        r#"
        int other(void *context);
        struct { int (*type)[3]; int (*max_entries)[1]; int (*key_size)[4]; int (*values[])(void *); }
            next SEC(".maps") = { .values = { other } };
        static long (*tail_call)(void *context, void *map, unsigned int slot) = (void *)12;
        SEC("parse") int calls(void *context) { tail_call(context, &next, 0); return 1; }
        SEC("more") int other(void *context) { return 0; }
        SEC("xdp_sock") int passes(void *context) { return 2; }"#,
    );
    let kinds = |object: &ObjectFile| -> Vec<Option<ProgramKind>> {
        let programs = object.programs().expect("its programs").into_iter();
        programs.map(|program| program.kind.ok()).collect()
    };
    assert_eq!(kinds(&object), [None, None, Some(ProgramKind::Xdp)]);
    let object = object.with_type(Some(ProgramKind::Tc));
    assert_eq!(kinds(&object), [Some(ProgramKind::Tc); 3]);
    let prepared = prepare(&object, "calls");
    assert_eq!(prepared.native.kind(), ProgramKind::Tc);
    assert_eq!(prepared.oracle.code, 0);
}

/// Code that would end a loop is refused before it is loaded, and only where it is reached.
#[test]
fn what_cannot_be_looped_is_known_before_it_is_loaded() {
    let object = typed(
        r#"
        struct { int (*type)[27]; int (*max_entries)[4096]; } ring SEC(".maps");
        struct { int (*type)[3]; int (*max_entries)[1]; int (*key_size)[4]; int (*value_size)[4]; } next SEC(".maps");
        static long (*output)(void *map, void *data, long bytes, long flags) = (void *)130;
        static long (*loop)(int times, void *body, void *context, long flags) = (void *)181;
        static long (*tail_call)(void *context, void *map, unsigned int slot) = (void *)12;
        static __attribute__((noinline)) long writes(int at, void *context)
        {
            return output(&ring, &at, 4, 0);
        }
        static __attribute__((noinline)) int jumps(void *context) { tail_call(context, &next, 0); return 1; }
        __attribute__((noinline)) int reports(int at) { writes(at, 0); return 0; }
        SEC("xdp") int calls(void *context) { reports(1); return 2; }
        SEC("xdp") int gives(void *context) { loop(3, writes, 0, 0); return 2; }
        SEC("xdp") int passes(void *context) { return 2; }
        SEC("xdp") int goes_on(void *context) { jumps(context); return 2; }"#,
    );
    let programs = object.programs().expect("its programs");
    let program = |name: &str| programs.iter().find(|one| one.name == name).expect(name);
    for name in ["calls", "gives"] {
        let why = program(name).kind.clone().expect_err(name);
        assert!(why.contains("ring buffer"), "{why}");
    }
    assert_eq!(program("passes").kind, Ok(ProgramKind::Xdp));
    assert_eq!(program("passes").form, LoopForm::Spliced);
    assert_eq!(program("goes_on").form, LoopForm::Windows);
}
