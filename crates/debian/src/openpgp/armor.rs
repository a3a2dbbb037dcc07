//! Text forms of OpenPGP: armor, and messages that people can read with a signature below them (RFC 9580, sections 6
//! and 7).

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// A message that is text, and its signatures.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The text as it is signed: lines end with CR and LF, the last line has no end, and no line ends with spaces.
    pub(super) signed: Vec<u8>,
    /// The same with ends of lines as files have them.
    pub(super) text: Vec<u8>,
    /// The packets below it.
    pub(super) signatures: Vec<u8>,
}

const BEGIN: &[u8] = b"-----BEGIN PGP SIGNED MESSAGE-----";
const BEGIN_SIGNATURE: &[u8] = b"-----BEGIN PGP SIGNATURE-----";
const END_SIGNATURE: &[u8] = b"-----END PGP SIGNATURE-----";
const BEGIN_KEY: &[u8] = b"-----BEGIN PGP PUBLIC KEY BLOCK-----";
const END_KEY: &[u8] = b"-----END PGP PUBLIC KEY BLOCK-----";

/// Spaces, tabs and carriage returns at the end of a line are not signed.
fn trimmed(line: &[u8]) -> &[u8] {
    let kept = line
        .iter()
        .rposition(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    &line[..kept.map_or(0, |at| at + 1)]
}

/// The lines of a text without their ends.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let end = self.0.iter().position(|byte| *byte == b'\n');
        let (line, rest) = match end {
            Some(end) => (&self.0[..end], &self.0[end + 1..]),
            None => (self.0, &[][..]),
        };
        self.0 = rest;
        Some(trimmed(line))
    }
}

/// Reads a message that is all of `bytes`: what is before or behind it makes it none.
pub(super) fn message(bytes: &[u8]) -> Result<Message, &'static str> {
    let mut lines = Lines(bytes);
    if lines.next() != Some(BEGIN) {
        return Err("it is not signed");
    }
    loop {
        match lines.next() {
            Some(b"") => break,
            Some(line) if line.starts_with(b"Hash: ") => {}
            _ => return Err("its signed text has a header that is not known"),
        }
    }
    let mut signed = Vec::with_capacity(bytes.len());
    let mut text = Vec::with_capacity(bytes.len());
    let mut is_first = true;
    loop {
        let line = lines.next().ok_or("it ends within its signed text")?;
        let line = match line.strip_prefix(b"- ") {
            Some(escaped) => escaped,
            None if line == BEGIN_SIGNATURE => break,
            // An empty line behind a dash has lost its space with the spaces at its end.
            None if line == b"-" => b"",
            None if line.starts_with(b"-") => return Err("its signed text has an unescaped dash"),
            None => line,
        };
        if !is_first {
            signed.extend(b"\r\n");
        }
        is_first = false;
        signed.extend(line);
        text.extend(line);
        text.push(b'\n');
    }
    let signatures =
        armored(&mut lines, END_SIGNATURE).ok_or("its signature is not in the form of OpenPGP")?;
    if lines.any(|line| !line.is_empty()) {
        return Err("text follows its signature");
    }
    Ok(Message {
        signed,
        text,
        signatures,
    })
}

/// The packets of a keyring, which may be armored.
pub(super) fn keyring(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut lines = Lines(bytes);
    if bytes.first().is_none_or(|first| first & 0x80 != 0) {
        return Some(bytes.to_vec());
    }
    let mut packets = Vec::new();
    while let Some(line) = lines.next() {
        match line {
            b"" => {}
            _ if line == BEGIN_KEY => packets.extend(armored(&mut lines, END_KEY)?),
            _ => return None,
        }
    }
    Some(packets)
}

/// Reads the rest of an armored block: headers, an empty line, base64, perhaps a checksum, and the last line. The
/// checksum proves nothing that a signature does not.
fn armored(lines: &mut Lines<'_>, end: &[u8]) -> Option<Vec<u8>> {
    loop {
        let line = lines.next()?;
        if line.is_empty() {
            break;
        }
        if !line.windows(2).any(|two| two == b": ") && !line.ends_with(b":") {
            return None;
        }
    }
    let mut base64 = Vec::new();
    loop {
        let line = lines.next()?;
        if line == end {
            break;
        }
        if line.starts_with(b"=") && line.len() == 5 {
            if lines.next()? == end {
                break;
            }
            return None;
        }
        base64.extend(line);
    }
    STANDARD.decode(base64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nA: b \t\n- - dash\n-\n\n\
                           -----BEGIN PGP SIGNATURE-----\nComment: x\n\nAAEC\n=abcd\n-----END PGP SIGNATURE-----\n";

    #[test]
    fn a_message_is_what_was_signed() {
        let wanted = Message {
            signed: b"A: b\r\n- dash\r\n\r\n".to_vec(),
            text: b"A: b\n- dash\n\n\n".to_vec(),
            signatures: vec![0, 1, 2],
        };
        assert_eq!(message(MESSAGE.as_bytes()), Ok(wanted));
        let windows = MESSAGE.replace('\n', "\r\n");
        assert_eq!(message(windows.as_bytes()), message(MESSAGE.as_bytes()));
    }

    #[test]
    fn anything_else_is_no_message() {
        let changed = |from: &str, to: &str| MESSAGE.replacen(from, to, 1);
        for (text, why) in [
            (String::new(), "not signed"),
            ("A: b\n".to_owned(), "not signed"),
            (format!("A: before\n{MESSAGE}"), "not signed"),
            (format!("\n{MESSAGE}"), "not signed"),
            (format!("{MESSAGE}A: behind\n"), "follows"),
            (format!("{MESSAGE}{MESSAGE}"), "follows"),
            (changed("Hash: SHA256", "Hash: SHA256\nA: b"), "header"),
            (changed("Hash: SHA256\n\n", ""), "header"),
            (changed("- - dash", "- dash\n-x"), "dash"),
            (changed("PGP SIGNATURE", "PGP signature"), "dash"),
            (MESSAGE[..60].to_owned(), "ends within"),
            (changed("AAEC", "A?EC"), "form"),
            (changed("AAEC", "AAE"), "form"),
            (changed("=abcd\n", "=abcd\nAAEC\n"), "form"),
            (changed("-----END", "-----end"), "form"),
        ] {
            let error = message(text.as_bytes()).expect_err(&text);
            assert!(error.contains(why), "{error}: {text}");
        }
    }

    #[test]
    fn keyrings_may_be_armored() {
        let armored =
            "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----\n";
        assert_eq!(keyring(armored.as_bytes()), Some(vec![0x99]));
        assert_eq!(keyring(armored.repeat(2).as_bytes()), Some(vec![0x99; 2]));
        assert_eq!(keyring(&[0x99, 1]), Some(vec![0x99, 1]));
        assert_eq!(keyring(b""), Some(vec![]));
        assert_eq!(keyring(b"nonsense"), None);
        assert_eq!(keyring(&armored.as_bytes()[..50]), None);
    }
}
