//! Compares a packet that an operation left with the expected one, byte by byte, for people.

use etherparse::Ethernet2Header;

use bpfcost_model::Problem;

/// Bytes in one line of a hex diff.
const LINE: usize = 16;

/// Bytes of an Ethernet header.
const ETHERNET: usize = Ethernet2Header::LEN;

/// The packet that an operation left.
pub(super) fn problem(what: &str, expected: &[u8], got: &[u8]) -> Option<Problem> {
    if expected == got {
        return None;
    }
    let at = expected
        .iter()
        .zip(got)
        .position(|(a, b)| a != b)
        .unwrap_or(expected.len().min(got.len()));
    Some(Problem {
        check: format!("packet of {what}"),
        expected: describe(expected, at),
        got: describe(got, at),
        detail: hex_diff(expected, got),
    })
}

fn describe(packet: &[u8], at: usize) -> String {
    match packet.get(at) {
        Some(byte) => format!("{byte:02x} at byte {at} ({})", field(packet, at)),
        None => format!("{} bytes", packet.len()),
    }
}

/// Both packets line by line where they differ, with the fields that are wrong.
fn hex_diff(expected: &[u8], got: &[u8]) -> String {
    let length = expected.len().max(got.len());
    let mut text = String::new();
    for start in (0..length).step_by(LINE) {
        let line = |bytes: &[u8]| -> Vec<Option<u8>> {
            (start..(start + LINE).min(length))
                .map(|i| bytes.get(i).copied())
                .collect()
        };
        let (want, have) = (line(expected), line(got));
        let hex = |bytes: &[Option<u8>]| -> String {
            let cells = bytes
                .iter()
                .map(|byte| byte.map_or("--".into(), |b| format!("{b:02x}")));
            cells.collect::<Vec<_>>().join(" ")
        };
        if want == have {
            text += &format!("  {start:04x}   {}\n", hex(&want));
            continue;
        }
        let wrong: Vec<usize> = (0..want.len()).filter(|&i| want[i] != have[i]).collect();
        let marks: String = (0..want.len())
            .map(|i| if wrong.contains(&i) { "^^ " } else { "   " })
            .collect();
        let mut fields: Vec<&str> = wrong.iter().map(|i| field(expected, start + i)).collect();
        fields.dedup();
        text += &format!("- {start:04x}   {}\n", hex(&want));
        text += &format!("+ {start:04x}   {}\n", hex(&have));
        text += &format!("         {} {}\n", marks.trim_end(), fields.join(", "));
    }
    text + "(- expected, + got)"
}

/// The name of what stands at an offset of a packet, for people who read a hex diff.
fn field(packet: &[u8], offset: usize) -> &'static str {
    const V4: [(usize, &str); 10] = [
        (0, "version and length"),
        (1, "DSCP and ECN"),
        (2, "total length"),
        (4, "identification"),
        (6, "fragment bits"),
        (8, "TTL"),
        (9, "protocol"),
        (10, "header checksum"),
        (12, "source address"),
        (16, "destination address"),
    ];
    const V6: [(usize, &str); 6] = [
        (0, "version, class and flow label"),
        (4, "payload length"),
        (6, "next header"),
        (7, "hop limit"),
        (8, "source address"),
        (24, "destination address"),
    ];
    let (fields, length): (&[_], usize) = match packet.get(12..14) {
        _ if offset < 6 => return "Ethernet destination",
        _ if offset < 12 => return "Ethernet source",
        _ if offset < ETHERNET => return "ethertype",
        Some([0x08, 0x00]) => (&V4, 20),
        Some([0x86, 0xdd]) => (&V6, 40),
        _ => return "payload",
    };
    let within = offset - ETHERNET;
    if within >= length {
        return "behind the first IP header";
    }
    fields
        .iter()
        .rev()
        .find(|(start, _)| *start <= within)
        .map_or("", |(_, name)| name)
}
