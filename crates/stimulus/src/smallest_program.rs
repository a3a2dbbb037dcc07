//! The smallest programs there are: one ends at once, and succeeds; the other writes a byte and
//! waits for ever. To start one of the machine's
//! would be other work on each machine.

/// Lengths of the two headers, which the code follows (`Elf64_Ehdr`, `Elf64_Phdr`).
const FILE_HEADER: u16 = 64;
const SEGMENT_HEADER: u16 = 56;

/// Address of the file in memory, and the largest size of a page that it may have there.
const BASE: u64 = 0x40_0000;
const PAGE: u64 = 0x1_0000;

/// `EM_X86_64`, `exit_group(0)`; and `write` of the file's first byte, then `pause` over and over.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "x86_64")]
const ENDS: &[u8] = &[
    0x31, 0xff, // xor edi, edi
    0xb8, 0xe7, 0, 0, 0, // mov eax, 231
    0x0f, 0x05, // syscall
];
#[cfg(target_arch = "x86_64")]
const WAITS: &[u8] = &[
    0xbf, 0x01, 0, 0, 0, // mov edi, 1
    0xbe, 0, 0, 0x40, 0, // mov esi, BASE
    0xba, 0x01, 0, 0, 0, // mov edx, 1
    0xb8, 0x01, 0, 0, 0, // mov eax, 1
    0x0f, 0x05, // syscall
    0xb8, 0x22, 0, 0, 0, // mov eax, 34
    0x0f, 0x05, // syscall
    0xeb, 0xf7, // jmp to the second mov eax
];

/// `EM_AARCH64`, `exit_group(0)`; and `write` of the file's first byte, then `ppoll` of nothing over and over.
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(target_arch = "aarch64")]
const ENDS: &[u8] = &[
    0x00, 0x00, 0x80, 0xd2, // mov x0, 0
    0xc8, 0x0b, 0x80, 0xd2, // mov x8, 94
    0x01, 0x00, 0x00, 0xd4, // svc 0
];
#[cfg(target_arch = "aarch64")]
const WAITS: &[u8] = &[
    0x20, 0x00, 0x80, 0xd2, // mov x0, 1
    0x01, 0x08, 0xa0, 0xd2, // mov x1, BASE
    0x22, 0x00, 0x80, 0xd2, // mov x2, 1
    0x08, 0x08, 0x80, 0xd2, // mov x8, 64
    0x01, 0x00, 0x00, 0xd4, // svc 0
    0x00, 0x00, 0x80, 0xd2, // mov x0, 0
    0x01, 0x00, 0x80, 0xd2, // mov x1, 0
    0x02, 0x00, 0x80, 0xd2, // mov x2, 0
    0x03, 0x00, 0x80, 0xd2, // mov x3, 0
    0x28, 0x09, 0x80, 0xd2, // mov x8, 73
    0x01, 0x00, 0x00, 0xd4, // svc 0
    0xfa, 0xff, 0xff, 0x17, // b to the second mov x0
];

/// The program that ends.
pub(crate) fn that_ends() -> Vec<u8> {
    bytes(ENDS)
}

/// The program that waits.
pub(crate) fn that_waits() -> Vec<u8> {
    bytes(WAITS)
}

/// Bytes of the file of a program: an executable of one segment, which is all of the file.
fn bytes(code: &[u8]) -> Vec<u8> {
    const NONE: u64 = 0;
    let length = u64::from(FILE_HEADER + SEGMENT_HEADER) + code.len() as u64;
    let entry = BASE + u64::from(FILE_HEADER + SEGMENT_HEADER);
    // 64 bits, little-endian, version 1; an executable, version 1.
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(2_u16.to_le_bytes());
    file.extend(MACHINE.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for address in [entry, u64::from(FILE_HEADER), NONE] {
        file.extend(address.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    // One segment, and no sections.
    for number in [FILE_HEADER, SEGMENT_HEADER, 1, 0, 0, 0] {
        file.extend(number.to_le_bytes());
    }
    // It is loaded, to be read and executed.
    for word in [1_u32, 5] {
        file.extend(word.to_le_bytes());
    }
    for word in [NONE, BASE, BASE, length, length, PAGE] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}
