//! Generated formats and arguments: the text of `bpf_snprintf`, and the result of `bpf_trace_printk`, in the kernel and
//! here. `bpf_trace_printk` writes the text of `bpf_snprintf`.

use std::os::fd::{AsRawFd as _, OwnedFd};

use bpfcost_uprobe::{object::load_quietly, translate};
use translate::{
    ArrayPlace, Backend as _, Error, Instruction, MapLayout, MapPlace, Program, Translator,
    helpers::MapDescriptor,
};

use crate::{
    assemble::*,
    input::Random,
    kernel, require,
    trial::{Bench, CONTEXT_BYTES, ENTRIES, ENTRY_BYTES, Input, Output, VALUE_BYTES},
};

const FORMATS: u64 = 3000;
/// The helpers' ids.
const SNPRINTF: i32 = 165;
const TRACE_PRINTK: i32 = 6;
/// Bytes of a format's map.
const FORMAT_BYTES: usize = 64;
/// Faults of a format, as helpers answer them.
const INVALID: i32 = -22;
/// The text is at the value's beginning, and strings for `%s` behind it.
const STRINGS: i16 = 160;
const STRING_BYTES: i16 = 32;
/// A ring: two pages before its data.
const RING_BYTES: usize = 4096;
const DATA: usize = 8192;
/// Bytes that make a format wrong, mostly; kernels before 6.18 or so take no other letters than those of ASCII.
const OTHER_BYTES: &[u8] = b"%lphn.*#\x01\x7fszd\x84\xa0\xc3\xd7\xff";
const WRONG_BYTES: &[u8] = OTHER_BYTES.split_at(13).0;
/// A record's head, and what a line has before its text.
const HEAD: usize = 8 + 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument {
    Number(u64),
    /// One of the strings, or addresses.
    Pointer(i16),
}

/// A format and its arguments.
#[derive(Clone, Debug)]
struct Line {
    format: Vec<u8>,
    arguments: Vec<Argument>,
    room: i32,
}

/// The maps of the bench, the format's, and the ring.
struct Layout<'a> {
    bench: &'a Bench,
    map: i32,
    format: &'a [u8],
    ring: &'a [u8],
}

impl MapLayout for Layout<'_> {
    fn place(&self, fd: i32) -> Result<MapPlace, Error> {
        if fd != self.map {
            return self.bench.place(fd);
        }
        Ok(MapPlace {
            handle: 0,
            array: Some(ArrayPlace {
                values: self.format.as_ptr() as u64,
                value_size: FORMAT_BYTES as u32,
                entries: 1,
            }),
            arena: None,
        })
    }

    fn trace_ring(&self) -> Option<u64> {
        Some(self.ring.as_ptr() as u64)
    }
}

fn field(random: &mut Random) -> (String, Argument) {
    let flags: String = (0..random.below(3))
        .map(|_| random.choose(&['-', '+', ' ', '0']))
        .collect();
    let width = match random.below(3) {
        0 => random.below(20).to_string(),
        _ => String::new(),
    };
    let pointer = Argument::Pointer(STRINGS + STRING_BYTES * random.below(3) as i16);
    // Of other addresses, the kernel shows a hash.
    let shown = Argument::Number(random.choose(&[0, 0, u64::MAX, -4095_i64 as u64]));
    let low = Argument::Number(random.value() & 0x7fff_ffff_ffff);
    let number = Argument::Number(random.value());
    let (letters, argument) = match random.below(8) {
        0 => (random.choose(&["s", "pks"]), pointer),
        1 => ("c", Argument::Number(random.below(256))),
        2 => (random.choose(&["p", "pK"]), shown),
        3 => (random.choose(&["px", "pxyz9"]), number),
        4 => (random.choose(&["ps", "pS", "pB"]), low),
        5 => (
            random.choose(&["pi4", "pI4", "pi6", "pI6", "pI4abc"]),
            pointer,
        ),
        _ => {
            let all = [
                "d", "i", "u", "x", "X", "ld", "li", "lu", "lx", "lX", "lld", "lli", "llu", "llx",
                "llX",
            ];
            (random.choose(&all), number)
        }
    };
    (format!("%{flags}{width}{letters}"), argument)
}

fn line(random: &mut Random, most: u64, wrong: &[u8]) -> Line {
    let mut format = String::new();
    let mut arguments = Vec::new();
    for _ in 0..random.below(most + 1) {
        let (text, argument) = field(random);
        if format.len() + text.len() + 10 > FORMAT_BYTES {
            break;
        }
        let between = ["", " ", ", ", "a", "%%", "\n", "~", "7"];
        format.push_str(random.choose(&between));
        format.push_str(&text);
        arguments.push(argument);
    }
    format.push_str(random.choose(&["", "\n", ".", " end", "%%"]));
    let mut format = format.into_bytes();
    // Some formats are wrong, or have more arguments than they need, or fewer.
    match random.below(12) {
        0 if !format.is_empty() => {
            let at = random.below(format.len() as u64) as usize;
            format[at] = random.choose(wrong);
            // A field may be of another kind now.
            arguments.fill(Argument::Number(0));
        }
        1 => drop(arguments.pop()),
        2 if arguments.len() < 3 => arguments.push(Argument::Number(1)),
        _ => {}
    }
    let room = random.choose(&[0, 1, 2, 10, 40, i32::from(STRINGS)]);
    Line {
        format,
        arguments,
        room,
    }
}

/// The arguments on the stack, the first one lowest, by way of R1. R6 is the value, R7 the context, which has numbers.
fn put_arguments(bench: &Bench, line: &Line) -> Vec<Instruction> {
    let mut code = vec![mov(7, 1)];
    code.extend(map_value(6, bench.value.fd(), 0));
    let count = line.arguments.len() as i16;
    for (index, argument) in (0..).zip(&line.arguments) {
        match argument {
            Argument::Number(_) => code.push(load(DOUBLE, 1, 7, 8 * index)),
            Argument::Pointer(offset) => {
                code.push(mov(1, 6));
                code.push(op_imm(ALU64, 0x00, 1, 0, (*offset).into()));
            }
        }
        code.push(store(DOUBLE, 10, 8 * (index - count), 1));
    }
    code
}

fn snprintf(bench: &Bench, line: &Line, map: &OwnedFd) -> Vec<Instruction> {
    let mut code = put_arguments(bench, line);
    let bytes = 8 * line.arguments.len() as i32;
    code.extend([mov(1, 6), mov_imm(2, line.room)]);
    code.extend(map_value(3, map.as_raw_fd(), 0));
    if bytes > 0 {
        code.push(mov(4, 10));
        code.push(op_imm(ALU64, 0x00, 4, 0, -bytes));
    } else {
        code.push(mov_imm(4, 0));
    }
    code.extend([mov_imm(5, bytes), call(SNPRINTF), exit()]);
    code
}

/// The helper has three arguments always.
fn trace_printk(bench: &Bench, line: &Line, map: &OwnedFd) -> Vec<Instruction> {
    let mut line = line.clone();
    line.arguments.resize(3, Argument::Number(0));
    let mut code = put_arguments(bench, &line);
    code.extend(map_value(1, map.as_raw_fd(), 0));
    code.push(mov_imm(2, FORMAT_BYTES as i32));
    for argument in 0..3 {
        code.push(load(
            DOUBLE,
            3 + argument,
            10,
            8 * (i16::from(argument) - 3),
        ));
    }
    code.extend([call(TRACE_PRINTK), exit()]);
    code
}

fn input(random: &mut Random, line: &Line) -> Input {
    let mut context = vec![0; CONTEXT_BYTES];
    for (word, argument) in context.chunks_exact_mut(8).zip(&line.arguments) {
        if let Argument::Number(number) = argument {
            word.copy_from_slice(&number.to_le_bytes());
        }
    }
    let mut value = vec![0xee; VALUE_BYTES as usize];
    for string in value[STRINGS as usize..].chunks_exact_mut(STRING_BYTES as usize) {
        let length = random.below(STRING_BYTES as u64) as usize;
        let letter = |_| random.choose(b"abcxyzABC 019%\xc3\xa4");
        let text: Vec<u8> = (0..length).map(letter).collect();
        string[..length].copy_from_slice(&text);
        string[length..].fill(0);
    }
    Input {
        context,
        value,
        entries: vec![0; (ENTRIES * ENTRY_BYTES) as usize],
    }
}

/// A program with its format.
struct Side<'a> {
    instructions: &'a [Instruction],
    map: i32,
    format: &'a [u8],
    ring: &'a [u8],
}

impl Side<'_> {
    /// Returns what it leaves here, and in the kernel; the verifier's log where that rejects it.
    fn run(&self, bench: &mut Bench, input: &Input) -> (Output, Result<Output, String>) {
        let program = Program {
            instructions: self.instructions,
            fd: -1,
        };
        let layout = Layout {
            bench,
            map: self.map,
            format: self.format,
            ring: self.ring,
        };
        let at = bench.machine.address();
        let translator = Translator::of_this_machine();
        let code = translator.translate(&program, at, &bench.helpers, &layout);
        bench.machine.put(&code.expect("it is supported").bytes);
        let (output, _) = bench.in_process(input, false);
        let loaded = kernel::load(self.instructions, None);
        (output, loaded.map(|fd| bench.in_kernel(&fd, input)))
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

impl Line {
    /// Returns whether it has fields of pointers that are copied before the text is written.
    fn has_copied_pointers(&self) -> bool {
        let mut pairs = self.format.windows(2);
        pairs.any(|pair| pair[0] == b'p' && b"kiIB".contains(&pair[1]))
    }
}

/// Returns what is in the ring: nothing, or the text of one line.
fn traced(ring: &mut [u64]) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = ring.iter().flat_map(|word| word.to_le_bytes()).collect();
    ring.fill(0);
    let record = &bytes[DATA..];
    let length = u32::from_le_bytes(record[..4].try_into().expect("4 bytes")) as usize;
    (length > 0).then(|| record[HEAD..8 + length].to_vec())
}

/// Returns whether the kernel takes letters that are not ASCII's.
fn takes_other_bytes(bench: &Bench) -> bool {
    let line = Line {
        format: vec![0xc3],
        arguments: Vec::new(),
        room: 1,
    };
    let map = kernel::read_only(&[0xc3, 0]).expect("a map can be made");
    kernel::load(&snprintf(bench, &line, &map), None).is_ok()
}

#[test]
fn text_is_what_the_kernel_writes() {
    if require::host() {
        load_quietly(compare_generated);
    }
}

fn compare_generated() {
    let mut bench = Bench::new().expect("maps and memory can be made");
    let mut ring = vec![0_u64; (DATA + 2 * RING_BYTES) / 8];
    let ring_map = MapDescriptor::ring(ring.as_mut_ptr() as u64, RING_BYTES as u32).to_bytes();
    let wrong_bytes = if takes_other_bytes(&bench) {
        OTHER_BYTES
    } else {
        WRONG_BYTES
    };
    let (mut written, mut wrong, mut lines) = (0, 0, 0);
    for seed in 1..=FORMATS {
        let mut random = Random::new(seed);
        let most = random.choose(&[3, 3, 9]);
        let line = line(&mut random, most, wrong_bytes);
        let input = input(&mut random, &line);
        let mut format = line.format.clone();
        format.resize(FORMAT_BYTES, 0);
        let map = kernel::read_only(&format).expect("a map can be made");
        let failed = |what: &str| {
            let text = String::from_utf8_lossy(&line.format).into_owned();
            format!("seed {seed}, {text:?} {:x?}: {what}", line.arguments)
        };
        let codes = [
            snprintf(&bench, &line, &map),
            trace_printk(&bench, &line, &map),
        ];
        let mut run = |instructions: &[Instruction]| {
            let side = Side {
                instructions,
                map: map.as_raw_fd(),
                format: &format,
                ring: &ring_map,
            };
            side.run(&mut bench, &input)
        };
        let (mut text, expected) = run(&codes[0]);
        match expected {
            Ok(expected) => {
                // The kernel loses count where one of these fields begins behind the room.
                let is_cut = text.result as i32 > line.room;
                if is_cut && line.has_copied_pointers() {
                    text.result = expected.result;
                }
                if text != expected {
                    let what = format!(
                        "{} and {:?}, not {} and {:?}",
                        text.result,
                        String::from_utf8_lossy(until_zero(&text.value)),
                        expected.result,
                        String::from_utf8_lossy(until_zero(&expected.value)),
                    );
                    panic!("{}", failed(&what));
                }
                written += 1;
            }
            Err(why) => {
                assert!(why.contains("Invalid format string"), "{}", failed(&why));
                assert_eq!(text.result as i32, INVALID, "{}", failed("it is wrong"));
                assert_eq!(text.value, input.value, "{}", failed("it wrote"));
                wrong += 1;
            }
        }
        if line.arguments.len() > 3 {
            continue;
        }
        let (printed, expected) = run(&codes[1]);
        let expected = expected.unwrap_or_else(|why| panic!("{}", failed(&why)));
        assert_eq!(
            printed.result,
            expected.result,
            "{}",
            failed("bpf_trace_printk")
        );
        let traced = traced(&mut ring);
        assert_eq!(
            traced.is_some(),
            printed.result as i32 >= 0,
            "{}",
            failed("a line")
        );
        let Some(traced) = traced else { continue };
        if text.result as i32 > 0 && line.room > 0 {
            let text = until_zero(&text.value);
            assert!(traced.starts_with(text), "{}", failed("the line"));
            lines += 1;
        }
    }
    eprintln!("{written} texts, {wrong} wrong formats, {lines} lines");
    assert!(written > FORMATS / 2 && wrong > FORMATS / 50 && lines > FORMATS / 4);
}

/// Strings and fields for which there is no room.
#[test]
fn long_text_is_cut_as_the_kernel_cuts_it() {
    if require::host() {
        load_quietly(compare_long);
    }
}

fn compare_long() {
    let mut bench = Bench::new().expect("maps and memory can be made");
    let mut ring = vec![0_u64; (DATA + 2 * RING_BYTES) / 8];
    let ring_map = MapDescriptor::ring(ring.as_mut_ptr() as u64, RING_BYTES as u32).to_bytes();
    let long = [&[b'x'; 600][..], &[0]].concat();
    let string = Argument::Number(long.as_ptr() as u64);
    for (format, expected, length) in [
        ("%s", 511, Some(511)),
        ("%d%s", 1 + 507, Some(508)),
        ("%s%d", -28, None),
        ("%s%s", -28, None),
        ("%s%c", -28, None),
        ("%600s", 600, Some(600)),
        ("%2000c|", 2001, Some(1023)),
        ("%-2000d|", 2001, Some(1023)),
    ] {
        let is_string = |field: &&str| field.ends_with('s');
        let fields: Vec<&str> = format.split('%').skip(1).collect();
        let argument = |field| match is_string(field) {
            true => string,
            false => Argument::Number(7),
        };
        let line = Line {
            format: format.as_bytes().to_vec(),
            arguments: fields.iter().map(argument).collect(),
            room: 0,
        };
        let input = input(&mut Random::new(1), &line);
        let mut format = line.format.clone();
        format.resize(FORMAT_BYTES, 0);
        let map = kernel::read_only(&format).expect("a map can be made");
        let side = Side {
            instructions: &trace_printk(&bench, &line, &map),
            map: map.as_raw_fd(),
            format: &format,
            ring: &ring_map,
        };
        let (output, in_kernel) = side.run(&mut bench, &input);
        let in_kernel = in_kernel.expect("the verifier accepts it").result as i32;
        let text = traced(&mut ring).map(|text| text.len());
        assert_eq!(
            (output.result as i32, in_kernel, text),
            (expected, expected, length),
            "{fields:?}"
        );
    }
}
