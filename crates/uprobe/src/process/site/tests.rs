//! Code for which sites are found, and code that is refused.

use super::*;
use crate::process::image::TailJump;

/// A function at 0x1000 with this code, and nops behind it.
fn function(code: &[u8]) -> Function {
    let (name, code, padding) = ("f".to_owned(), code.to_vec(), vec![0x90; 8]);
    Function {
        name,
        address: 0x1000,
        code,
        padding,
        is_go: false,
        entrances: Vec::new(),
        is_described: true,
        tail_jumps: Vec::new(),
    }
}

fn reason<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result.unwrap_err() {
        Error::Unpatchable { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn whole_instructions_are_taken_from_every_prologue() {
    let cases: [(&[u8], usize); 5] = [
        (&[0x55, 0x48, 0x89, 0xe5, 0x31, 0xc0, 0x5d, 0xc3], 6), // push rbp; mov rbp, rsp; xor eax, eax
        (&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3], 5),       // endbr64; push rbp
        (&[0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3], 5),             // nop5
        (&[0x48, 0x83, 0xec, 0x08, 0xe8, 0, 0, 0, 0, 0xc3], 9), // sub rsp, 8; call
        (&[0x31, 0xc0, 0xc3], 5),                               // xor eax, eax; ret; padding
    ];
    for (code, length) in cases {
        let site = Site::entry(&function(code)).unwrap();
        assert_eq!(site.end(), 0x1000 + length as u64, "{code:x?}");
    }
}

#[test]
fn what_a_jump_would_break_is_refused() {
    let mut short = function(&[0x31, 0xc0, 0xc3]);
    short.padding = vec![0x55; 8];
    assert_eq!(
        reason(Site::entry(&short)),
        "it is shorter than 5 bytes, with the padding behind it"
    );
    // push rbx; dec eax (+1); jne +1
    let looped = function(&[0x53, 0xff, 0xc8, 0x75, 0xfc, 0x5b, 0xc3]);
    assert_eq!(
        reason(Site::entry(&looped)),
        "a branch leads into its first 5 bytes"
    );
    // call rax (2 bytes); nop; nop; nop; ret
    let called = function(&[0xff, 0xd0, 0x90, 0x90, 0x90, 0xc3]);
    assert_eq!(
        reason(Site::entry(&called)),
        "a call lies in its first 5 bytes"
    );
    // sub rsp, 8; call [rsp + 8]
    let through = function(&[0x48, 0x83, 0xec, 0x08, 0xff, 0x54, 0x24, 0x08, 0xc3]);
    assert_eq!(
        reason(Site::entry(&through)),
        "a call in its first 5 bytes can't be moved"
    );
    assert_eq!(
        reason(Site::entry(&function(&[0x06, 0x90, 0x90, 0x90, 0x90]))),
        "its code can't be decoded at +0x0"
    );
}

#[test]
fn a_branch_to_the_first_byte_is_none_into_the_patch() {
    // sub rsp, 16; jmp to the start
    let site = Site::entry(&function(&[0x48, 0x83, 0xec, 0x10, 0xeb, 0xfa])).unwrap();
    assert_eq!(site.end(), 0x1006);
}

#[test]
fn a_ret_takes_its_padding_or_what_is_before_it() {
    let padded = Site::returns(&function(&[0x55, 0x5d, 0xc3])).unwrap();
    assert_eq!(
        (padded.sites[0].address, padded.sites[0].instructions.len()),
        (0x1002, 1)
    );
    assert_eq!(padded.sites[0].original, [0xc3, 0x90, 0x90, 0x90, 0x90]);
    // add rsp, 24; ret; then more code: push rbp; pop rbp; jmp to the start
    let squeezed = Site::returns(&function(&[
        0x48, 0x83, 0xc4, 0x18, 0xc3, 0x55, 0x5d, 0xeb, 0xf7,
    ]))
    .unwrap();
    assert_eq!(
        (
            squeezed.sites[0].address,
            squeezed.sites[0].instructions.len()
        ),
        (0x1000, 2)
    );
    assert!(squeezed.unseen.is_empty());
}

#[test]
fn returns_that_no_jump_fits_are_named() {
    // je +6 (to the second ret's pop); nop3; ret; pop rbp (target); ret
    let mut tight = function(&[0x74, 0x04, 0x0f, 0x1f, 0x00, 0xc3, 0x5d, 0xc3]);
    tight.padding.clear();
    assert_eq!(
        reason(Site::returns(&tight)),
        "a call or a jump lies in the 5 bytes that end with its RET"
    );
    // test edi, edi; jne 0x2000 (another function); ret
    let tail = function(&[0x85, 0xff, 0x0f, 0x85, 0xf8, 0x0f, 0x00, 0x00, 0xc3]);
    let returns = Site::returns(&tail).unwrap();
    assert_eq!(
        returns.unseen,
        [(2, "it leaves by a jump to another function")]
    );
    let reason = reason(returns.complete(&tail));
    assert_eq!(reason, "it leaves by a jump to another function, at +0x2");
    // jmp rax; ret
    let indirect = Site::returns(&function(&[0xff, 0xe0, 0xc3])).unwrap();
    assert_eq!(indirect.unseen.len(), 1);
}

#[test]
fn a_jump_to_another_function_has_a_place_if_nothing_is_in_the_way() {
    let known = |code: &[u8], offset: u64, obstacle| {
        let mut function = function(code);
        let address = 0x1000 + offset;
        function.tail_jumps = vec![TailJump { address, obstacle }];
        Site::returns(&function)
    };
    // test edi, edi; jne 0x2000; ret
    let conditional = [0x85, 0xff, 0x0f, 0x85, 0xf8, 0x0f, 0x00, 0x00, 0xc3];
    let sites = known(&conditional, 2, None).unwrap().sites;
    let places = |sites: &[Site]| -> Vec<(u64, usize, bool)> {
        let place = |one: &Site| (one.address, one.probed, one.is_tail);
        sites.iter().map(place).collect()
    };
    assert_eq!(places(&sites), [(0x1002, 0, true), (0x1008, 0, false)]);
    let refused = known(&conditional, 2, Some("it may throw")).unwrap();
    assert_eq!(refused.unseen, [(2, "it may throw")]);
    // xor eax, eax; inc edi; jmp to 0x1050: 2 bytes, and 8 of padding behind.
    let short = [0x31, 0xc0, 0xff, 0xc7, 0xeb, 0x4a];
    assert_eq!(
        places(&known(&short, 4, None).unwrap().sites),
        [(0x1004, 0, true)]
    );
    // The same, and more code behind it: the instructions before are replaced too.
    let squeezed = [&short[..], &[0x55, 0x5d, 0xeb, 0xf6]].concat();
    assert_eq!(
        places(&known(&squeezed, 4, None).unwrap().sites),
        [(0x1000, 2, true)]
    );
    // js to 0x1050 goes on behind.
    let brief = [0x31, 0xc0, 0xff, 0xc7, 0x78, 0x4a, 0xc3];
    assert_eq!(
        known(&brief, 4, None).unwrap().unseen,
        [(4, "the jump by which it leaves has less room than 5 bytes")]
    );
}

/// cmp edi, esi; nop; jle +2; inc edi; mov eax, edi; call to +0x20; xor ecx, ecx; jne back to the mov; ret
const INSIDE: [u8; 22] = [
    0x39, 0xf7, 0x90, 0x7e, 0x02, 0xff, 0xc7, 0x89, 0xf8, 0x50, 0xe8, 0x11, 0, 0, 0, 0x31, 0xc9,
    0x75, 0xf4, 0x90, 0x58, 0xc3,
];

#[test]
fn any_instruction_that_a_jump_can_replace_has_a_place() {
    let function = function(&INSIDE);
    let place = |offset| {
        let site = Site::at(&function, offset).unwrap();
        assert_eq!(site.probed(), 0x1000 + offset);
        (site.when, site.address - 0x1000, site.end() - 0x1000)
    };
    assert_eq!(place(0), (When::Entry, 0, 5));
    // A call may be the last.
    assert_eq!(place(7), (When::Inside, 7, 15));
    assert_eq!(place(10), (When::Inside, 10, 15));
    assert_eq!(place(15), (When::Inside, 15, 20));
    // Up to the RET, and its padding.
    assert_eq!(place(20), (When::Inside, 20, 25));
    assert_eq!(place(21), (When::Inside, 21, 26));
}

#[test]
fn why_an_instruction_has_no_place_is_said() {
    let mut function = function(&INSIDE);
    let message = |function: &Function, offset| Site::at(function, offset).unwrap_err().to_string();
    let kernel = "\n  use a kernel uprobe for it";
    let branch = "a branch leads into the 5 bytes there";
    for offset in [3, 5] {
        let expected = format!("f+{offset:#x} can't be probed: {branch}{kernel}");
        assert_eq!(message(&function, offset), expected);
    }
    assert_eq!(
        message(&function, 11),
        "f+0xb: no instruction begins there\n  the next ones begin at +0xa and +0xf"
    );
    assert_eq!(
        message(&function, 22),
        "f: it has 22 bytes, and no offset 0x16"
    );
    // From the cold part of the function.
    function.entrances = vec![0x1013];
    let expected = format!("f+0xf can't be probed: {branch}{kernel}");
    assert_eq!(message(&function, 15), expected);
    function.padding.clear();
    assert_eq!(
        message(&function, 20),
        format!(
            "f+0x14 can't be probed: a jump or a RET lies in the 5 bytes there, with too little \
             padding behind it{kernel}"
        )
    );
}

#[test]
fn functions_whose_state_is_unknown_have_few_places() {
    // nop; xor eax, eax; jmp [rax * 8 + 0x1000]; ret
    let table = function(&[
        0x90, 0x90, 0x31, 0xc0, 0x0f, 0x1f, 0x44, 0, 0, 0xff, 0x24, 0xc5, 0, 0x10, 0, 0, 0xc3,
    ]);
    assert_eq!(
        reason(Site::at(&table, 1)),
        "a jump table of the function may lead into the 5 bytes there"
    );
    // A nop of 5 bytes: nothing else moves.
    assert_eq!(Site::at(&table, 4).unwrap().end(), 0x1009);
    // std; nop; rep movsb; cld; ret
    let backwards = function(&[0xfd, 0x90, 0xf3, 0xa4, 0xfc, 0xc3]);
    assert_eq!(
        reason(Site::at(&backwards, 1)),
        "the function sets the direction flag"
    );
    let mut go = function(&INSIDE);
    go.is_go = true;
    assert_eq!(
        reason(Site::at(&go, 2)),
        "this place of a Go function has no room on the stack that is certain"
    );
    let site = Site::at(&go, 21).unwrap();
    assert_eq!((site.when, site.probed()), (When::Inside, 0x1015));
    assert!(Site::at(&go, 0).is_ok());
}

#[test]
fn amid_go_functions_there_has_to_be_room_and_one_instruction() {
    // cmp rsp, [r14 + 16]; jbe to +0x11; push rbp; call 0x2000 (+7); add rsp, 16; ret (+0x10); behind it, what makes
    // the stack larger: call 0x2000; jmp to the start
    let mut go = function(&[
        0x49, 0x3b, 0x66, 0x10, 0x76, 0x0b, 0x55, 0xe8, 0xf4, 0x0f, 0x00, 0x00, 0x48, 0x83, 0xc4,
        0x10, 0xc3, 0xe8, 0xea, 0x0f, 0x00, 0x00, 0xeb, 0xe8,
    ]);
    go.is_go = true;
    let site = Site::at(&go, 7).unwrap();
    assert_eq!((site.address, site.end()), (0x1007, 0x100c));
    assert!(site.is_amid());
    let refused = |offset| reason(Site::at(&go, offset));
    assert!(refused(6).contains("has to have 5 bytes"));
    let full = "this place of a Go function has no room on the stack that is certain";
    assert_eq!([refused(4), refused(0x11)], [full, full]);
    // A RET of Go needs no room; r12 and the flags are dead there.
    assert!(!Site::at(&go, 0x10).unwrap().is_amid());
}

#[test]
fn other_comparisons_than_that_of_gos_stack_are_no_test_of_it() {
    // The comparison; jbe to +0x0e; call 0x2000; mov al, [rax]; ret; jmp to the start
    let place = |comparison: [u8; 4]| {
        let rest = [
            0x76, 0x08, 0xe8, 0xf5, 0x0f, 0, 0, 0x8a, 0x00, 0xc3, 0xeb, 0xf0,
        ];
        let mut go = function(&[&comparison[..], &rest].concat());
        go.is_go = true;
        Site::at(&go, 6)
    };
    // cmp rsp, r12 and r13 with [r14 + 16]
    for comparison in [
        [0x49, 0x3b, 0x66, 0x10],
        [0x4d, 0x3b, 0x66, 0x10],
        [0x4d, 0x3b, 0x6e, 0x10],
    ] {
        assert_eq!(place(comparison).unwrap().address, 0x1006);
    }
    // cmp rcx, [rsi + 16]; cmp rcx, [r14 + 16]; cmp rsp, [rsi + 16]
    for comparison in [
        [0x48, 0x3b, 0x4e, 0x10],
        [0x49, 0x3b, 0x4e, 0x10],
        [0x48, 0x3b, 0x66, 0x10],
    ] {
        assert_eq!(
            reason(place(comparison)),
            "this place of a Go function has no room on the stack that is certain"
        );
    }
}

#[test]
fn what_may_fault_stays_in_go_functions() {
    let place = |instruction: &[u8]| {
        // cmp rsp, [r14 + 16]; jbe behind the RET; the instruction; ret; jmp to the start
        let over = instruction.len() as u8 + 1;
        let test = [0x49, 0x3b, 0x66, 0x10, 0x76, over];
        let end = [0xc3, 0xeb, 0u8.wrapping_sub(over + 8)];
        let mut go = function(&[&test[..], instruction, &end].concat());
        go.is_go = true;
        Site::at(&go, 6)
    };
    let stay: [&[u8]; 3] = [
        &[0x48, 0x8b, 0x83, 0, 1, 0, 0],       // mov rax, [rbx + 0x100]
        &[0xff, 0x93, 0, 1, 0, 0],             // call [rbx + 0x100]
        &[0x48, 0x8b, 0x04, 0xc5, 0, 0, 1, 0], // mov rax, [rax * 8 + 0x10000]
    ];
    for instruction in stay {
        assert_eq!(
            reason(place(instruction)),
            "in a Go function, an instruction that may fault has to stay where it is"
        );
    }
    let moved: [&[u8]; 6] = [
        &[0x48, 0x8b, 0x44, 0x24, 8],    // mov rax, [rsp + 8]
        &[0x48, 0x8b, 0x05, 0, 1, 0, 0], // mov rax, [rip + 0x100]
        &[0x49, 0x8b, 0x86, 0, 1, 0, 0], // mov rax, [r14 + 0x100]
        &[0x48, 0x8d, 0x83, 0, 1, 0, 0], // lea rax, [rbx + 0x100]
        &[0x0f, 0x1f, 0x44, 0, 0],       // nop [rax + rax]
        &[0xb8, 1, 0, 0, 0],             // mov eax, 1
    ];
    for instruction in moved {
        assert_eq!(
            place(instruction).unwrap().address,
            0x1006,
            "{instruction:x?}"
        );
    }
}

#[test]
fn what_go_recovers_from_stays_where_the_caller_is_not_on_top() {
    // mov rax, [rcx + 8]; pop rbp; ret; then more code
    let framed = [0x48, 0x8b, 0x41, 0x08, 0x5d, 0xc3, 0x90];
    // mov rax, [rcx + 8]; xor ebx, ebx; ret; then more code
    let leaf = [0x48, 0x8b, 0x41, 0x08, 0x31, 0xdb, 0xc3, 0x90];
    // mov rax, [rsp + 8]; pop rbp; ret; then more code
    let stack = [0x48, 0x8b, 0x44, 0x24, 0x08, 0x5d, 0xc3, 0x90];
    for (code, is_go, is_refused) in [
        (&framed[..], true, true),
        (&framed, false, false),
        (&leaf, true, false),
        (&stack, true, false),
    ] {
        let mut function = function(code);
        function.padding.clear();
        function.is_go = is_go;
        let returns = Site::returns(&function);
        assert_eq!(returns.is_err(), is_refused, "{code:x?} {is_go}");
        if let Err(error) = returns {
            assert!(error.to_string().contains("Go may recover from"), "{error}");
        }
    }
}
