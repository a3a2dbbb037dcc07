//! Packets of a command line: built in, in hexadecimal digits, or of a capture.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use etherparse::PacketBuilder;

use super::{Form, Input, InputError, pcap};

/// What begins the name of a packet that is built in.
const BUILT_IN: &str = "builtin:";
/// The most bytes of a capture.
const MAX_IN_FILE: u64 = 64 << 20;
/// Most packets of a run: each is a case.
const MAX_PACKETS: usize = 256;

/// What to do about too many packets.
const FEWER: &str = "Take the first ones: tcpdump -r FILE.pcap -c 10 -w FEW.pcap";

/// The inputs that these words name, each with a name of its own.
pub fn inputs(words: &[String]) -> Result<Vec<Input>, InputError> {
    let mut all: Vec<Input> = Vec::new();
    for word in words {
        let inputs = of_word(word)?;
        if all.len() + inputs.len() > MAX_PACKETS {
            return Err(InputError::Wrong(format!(
                "{word}: there are too many packets: each is a case, and a run has at most {MAX_PACKETS}\n  {FEWER}"
            )));
        }
        for input in inputs {
            let taken = |name: &str| all.iter().any(|one| one.name == name);
            let numbered = (2..).map(|number| format!("{}-{number}", input.name));
            let mut names = std::iter::once(input.name.clone()).chain(numbered);
            let name = names.find(|name| !taken(name)).unwrap_or_default();
            all.push(Input { name, ..input });
        }
    }
    Ok(all)
}

/// A file, which may be a pipe; `None` if it has more bytes than a capture or the contents of a map should.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(MAX_IN_FILE + 1);
    file.read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= MAX_IN_FILE).then_some(bytes))
}

/// The packets of one word: built in, hexadecimal digits, or a file.
fn of_word(word: &str) -> Result<Vec<Input>, InputError> {
    if let Some(name) = word.strip_prefix(BUILT_IN) {
        let all = built_in();
        let names: Vec<String> = all.iter().map(|one| one.name.clone()).collect();
        let named = all.into_iter().find(|one| one.name == name);
        return named.map(|one| vec![one]).ok_or_else(|| {
            InputError::Wrong(format!(
                "there is no built-in packet {name}\n  There are: {BUILT_IN}{}",
                names.join(&format!(", {BUILT_IN}"))
            ))
        });
    }
    if let Some(bytes) = hexadecimal(word) {
        return Ok(vec![Input {
            name: "packet".to_owned(),
            about: format!("{} bytes of the command line", bytes.len()),
            form: Form::Bytes,
            bytes,
        }]);
    }
    let path = Path::new(word);
    if !path.exists() && !word.contains(['.', '/']) {
        return Err(InputError::Wrong(format!(
            "{word} is no packet\n  Name a capture (FILE.pcap), a whole number of bytes in hexadecimal digits, or \
             {BUILT_IN}udp"
        )));
    }
    let unreadable = |source| InputError::Unreadable {
        path: word.to_owned(),
        source,
    };
    let wrong = |why: String| InputError::Wrong(format!("{word}: {why}"));
    let bytes = read(path).map_err(unreadable)?;
    let bytes = bytes.ok_or_else(|| wrong(format!("it is too large\n  {FEWER}")))?;
    let packets = pcap::packets(&bytes, MAX_PACKETS + 1).map_err(wrong)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = |number: usize| match packets.len() {
        1 => stem.to_string(),
        _ => format!("{stem}-{number}"),
    };
    let input = |(number, bytes): (usize, &Vec<u8>)| Input {
        name: name(number),
        about: format!("{} bytes, packet {number} of {word}", bytes.len()),
        form: Form::Packet,
        bytes: bytes.clone(),
    };
    Ok((1..).zip(&packets).map(input).collect())
}

/// Bytes in hexadecimal digits, with or without colons or spaces between them.
fn hexadecimal(word: &str) -> Option<Vec<u8>> {
    let digits: String = word.chars().filter(|one| !": ".contains(*one)).collect();
    let is_hex = digits.bytes().all(|one| one.is_ascii_hexdigit());
    if digits.is_empty() || !is_hex || !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// The inputs that are built in: two small packets, one of an Ethernet link's size, and a context.
fn built_in() -> Vec<Input> {
    let ethernet = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let v4 = || ethernet().ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
    let v6_source = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let v6_target = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let written = |name: &str, about: &str, write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        Input {
            name: name.to_owned(),
            about: about.to_owned(),
            form: Form::Packet,
            bytes,
        }
    };
    // What is written to memory, of sizes that fit, can't fail.
    let built = "a packet of a fixed size";
    vec![
        written("udp", "UDP in IPv4, 64 bytes", &|bytes| {
            v4().udp(40_000, 53).write(bytes, &[0x5a; 22]).expect(built);
        }),
        written("tcp", "TCP in IPv4, 1,514 bytes", &|bytes| {
            let segment = v4().tcp(40_000, 80, 1, 8192).ack(1);
            segment.write(bytes, &[0x5a; 1460]).expect(built);
        }),
        written("syn6", "TCP SYN in IPv6, 74 bytes", &|bytes| {
            let segment = ethernet().ipv6(v6_source, v6_target, 64);
            let segment = segment.tcp(40_000, 80, 1, 8192).syn();
            segment.write(bytes, &[]).expect(built);
        }),
        Input {
            name: "zeros".to_owned(),
            about: "a context of 96 bytes, all 0".to_owned(),
            form: Form::Context,
            bytes: vec![0; 96],
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_all(words: &[&str]) -> Result<Vec<Input>, String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        inputs(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn built_in_packets_are_as_long_as_they_say() {
        let lengths: Vec<usize> = built_in().iter().map(|one| one.bytes.len()).collect();
        assert_eq!(lengths, [64, 1514, 74, 96]);
    }

    #[test]
    fn hexadecimal_digits_are_a_packet() {
        let plain = "00".repeat(14);
        let colons = ["ff"; 14].join(":");
        let all = parse_all(&[&plain, &colons, "builtin:udp"]).expect("packets");
        let names: Vec<&str> = all.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["packet", "packet-2", "udp"]);
        assert_eq!(all[1].bytes, [0xff; 14]);
    }

    #[test]
    fn mistakes_say_what_to_do() {
        for (word, says) in [
            ("builtin:arp", "builtin:udp, builtin:tcp, builtin:syn6"),
            ("abc", "in hexadecimal digits"),
            ("none.pcap", "No such file"),
        ] {
            let error = parse_all(&[word]).expect_err(word);
            assert!(error.contains(says), "{error}");
        }
    }
}
