//! The order of versions of packages, as Debian's policy has it (section 5.6.12).

use std::cmp::Ordering;

/// Which of two versions is newer.
pub(crate) fn compare(one: &str, other: &str) -> Ordering {
    let (one, other) = (split(one), split(other));
    part(one.0, other.0)
        .then_with(|| part(one.1, other.1))
        .then_with(|| part(one.2, other.2))
}

/// Epoch, upstream version and revision.
fn split(version: &str) -> (&str, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, "0"));
    (epoch, upstream, revision)
}

/// Letters before other characters, and a tilde even before the end.
fn weight(byte: Option<u8>) -> u32 {
    match byte {
        Some(b'~') => 0,
        None => 1,
        Some(byte) if byte.is_ascii_digit() => 1,
        Some(byte) if byte.is_ascii_alphabetic() => 2 + u32::from(byte),
        Some(byte) => 300 + u32::from(byte),
    }
}

/// Compares in turns what is no number, and numbers.
fn part(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    while !one.is_empty() || !other.is_empty() {
        let word_ends = |text: &[u8]| text.first().is_none_or(u8::is_ascii_digit);
        while !word_ends(one) || !word_ends(other) {
            let (a, b) = (one.first().copied(), other.first().copied());
            let order = weight(a).cmp(&weight(b));
            if order.is_ne() {
                return order;
            }
            one = one.get(1..).unwrap_or_default();
            other = other.get(1..).unwrap_or_default();
        }
        let (a, b) = (number(&mut one), number(&mut other));
        // Without leading zeros a longer number is larger.
        let order = a.len().cmp(&b.len()).then_with(|| a.cmp(b));
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Takes the digits at the beginning, and returns them without leading zeros.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    *text = rest;
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_an_order() {
        let sorted = [
            "6.12~rc2-1",
            "6.12-1~bpo1",
            "6.12-1",
            "6.12-2",
            "6.12-10",
            "6.12.9-1",
            "6.12.107-1",
            "6.12.107-1+b1",
            "7.0-1",
            "1:1.0-1",
        ];
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                assert_eq!(compare(one, other), at.cmp(&other_at), "{one} {other}");
            }
        }
        assert_eq!(compare("1.01-1", "1.1-1"), Ordering::Equal);
        assert_eq!(compare("", ""), Ordering::Equal);
    }
}
