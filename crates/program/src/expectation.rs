//! What runs of a program must do: `--expect MAP[KEY]=+N`, and files that `--record-expected` writes.

use std::{collections::BTreeMap, path::Path};

use bpfcost_bpf::program::{MapEntry, ObjectFile};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use bpfcost_model::Behaviour;

use super::{InputError, map_setting, packet};

/// The version of files that this program writes and reads.
const SCHEMA: u32 = 1;
/// Bytes of keys that are numbers.
const NUMBERS: [usize; 4] = [1, 2, 4, 8];

/// What is expected of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// By how much each run changes a number, by its place.
    pub per_run: BTreeMap<String, i64>,
    /// What a program does with an input.
    pub behaviours: Vec<Expectation>,
}

/// What a program does with an input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// The program.
    pub program: String,
    /// The input's name.
    pub input: String,
    /// A digest of its bytes: another packet of that name is not the same input.
    pub input_digest: String,
    /// What it does.
    #[serde(flatten)]
    pub behaviour: Behaviour,
}

#[derive(Serialize, Deserialize)]
struct ExpectedFile {
    schema: u32,
    expected: Vec<Expectation>,
}

/// A digest of the bytes of inputs, in a few letters.
pub(super) fn digest<'a>(inputs: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut digest = Sha256::new();
    for bytes in inputs {
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    }
    let digest = digest.finalize();
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Expected {
    /// What these words say: files, or places in maps and variables of an object with what a run changes there.
    pub fn parse(words: &[String], object: &ObjectFile) -> anyhow::Result<Self> {
        let mut expected = Expected::default();
        for word in words {
            let wrong = |why: String| InputError::Wrong(format!("--expect {word}: {why}"));
            if let Some((place, amount)) = amount(word) {
                let place = place_in(place, object)?.map_err(wrong)?;
                expected.per_run.insert(place, amount);
                continue;
            }
            let unreadable = |source| InputError::Unreadable {
                path: word.clone(),
                source,
            };
            let text = packet::read(Path::new(word)).map_err(unreadable)?;
            let text = text.ok_or_else(|| wrong("it is too large".to_owned()))?;
            let known = parsed(&text).map_err(|why| InputError::Wrong(format!("{word}: {why}")))?;
            expected.behaviours.extend(known);
        }
        Ok(expected)
    }

    /// What a program should do with an input; `None` if nothing says it.
    pub fn behaviour(&self, program: &str, input: &str) -> Option<&Expectation> {
        let mut all = self.behaviours.iter();
        all.find(|one| one.program == program && one.input == input)
    }
}

/// The expectations of a file, or why there are none.
fn parsed(text: &[u8]) -> Result<Vec<Expectation>, String> {
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
    }
    let advice = "\n  Write one with: bpfcost program FILE.bpf.o --record-expected FILE";
    let version: Version = serde_json::from_slice(text).map_err(|error| {
        format!("this is not a file that --record-expected wrote: {error}{advice}")
    })?;
    if version.schema != SCHEMA {
        return Err(format!(
            "it has schema {}, and this version of bpfcost reads {SCHEMA}{advice}",
            version.schema
        ));
    }
    let file: ExpectedFile =
        serde_json::from_slice(text).map_err(|error| format!("it is damaged: {error}{advice}"))?;
    if file.expected.is_empty() {
        return Err(format!("it expects nothing{advice}"));
    }
    Ok(file.expected)
}

/// The file of these.
pub fn expected_file(expected: Vec<Expectation>) -> String {
    let file = ExpectedFile {
        schema: SCHEMA,
        expected,
    };
    // Text and numbers can't fail to be written.
    serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
}

/// `PLACE=+N`, `PLACE=-N`, `PLACE=N`; `None` if it is something else.
fn amount(word: &str) -> Option<(&str, i64)> {
    let (place, amount) = word.rsplit_once('=')?;
    let name = Place::parse(place)?.name;
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
    let amount = amount.parse().ok()?;
    (!name.is_empty() && name.chars().all(is_name)).then_some((place, amount))
}

/// A place as it is written: `NAME`, `NAME[KEY]`, each with or without `@OFFSET`.
struct Place<'a> {
    name: &'a str,
    key: Option<&'a str>,
    offset: usize,
}

impl<'a> Place<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (text, offset) = match text.rsplit_once('@') {
            Some((text, offset)) => (text, offset.parse().ok()?),
            None => (text, 0),
        };
        let (name, key) = match text.split_once('[') {
            Some((name, key)) => (name, Some(key.strip_suffix(']')?)),
            None => (text, None),
        };
        Some(Place { name, key, offset })
    }
}

/// The place as changes of maps have it, or why there is none.
fn place_in(place: &str, object: &ObjectFile) -> anyhow::Result<Result<String, String>> {
    let Some(Place { name, key, offset }) = Place::parse(place) else {
        return Ok(Err("write MAP[KEY]=+N".to_owned()));
    };
    let maps = object.maps()?;
    let offset = match offset {
        0 => String::new(),
        offset => format!("@{offset}"),
    };
    Ok(match (maps.iter().find(|map| map.name == name), key) {
        (Some(map), Some(key)) => written_key(key, map).map(|key| format!("{name}[{key}]{offset}")),
        (Some(_), None) if offset.is_empty() => Ok(name.to_owned()),
        (None, None) if object.has_variable(name)? => Ok(format!("{name}{offset}")),
        (Some(_) | None, _) => Err(format!(
            "there is no map or variable {name} in {} for it\n  {}. Name MAP[KEY], VARIABLE, or a table for its number of \
             entries",
            object.path().display(),
            map_setting::names(&maps)
        )),
    })
}

/// A key as changes of maps have it.
fn written_key(key: &str, map: &MapEntry) -> Result<String, String> {
    let digits = key.strip_prefix("0x");
    if NUMBERS.contains(&map.key_bytes) {
        let number = match digits {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => key.parse::<u64>().ok(),
        };
        let fits = |number: &u64| map.key_bytes == 8 || *number >> (8 * map.key_bytes) == 0;
        return number
            .filter(fits)
            .map(|number| number.to_string())
            .ok_or_else(|| {
                format!(
                    "a key of {} is a number of {} bytes, and {key} is none",
                    map.name, map.key_bytes
                )
            });
    }
    digits
        .filter(|digits| digits.len() == 2 * map.key_bytes)
        .filter(|digits| digits.bytes().all(|one| one.is_ascii_hexdigit()))
        .map(|digits| format!("0x{}", digits.to_ascii_lowercase()))
        .ok_or_else(|| {
            format!(
                "a key of {} has {} bytes\n  Write them as 0x and {} hexadecimal digits",
                map.name,
                map.key_bytes,
                2 * map.key_bytes
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_told_from_files() {
        assert_eq!(amount("stats[0]=+1"), Some(("stats[0]", 1)));
        assert_eq!(amount("stats[0x0a]@8=-64"), Some(("stats[0x0a]@8", -64)));
        assert_eq!(amount("runs=0"), Some(("runs", 0)));
        for file in [
            "expected.json",
            "./a=+1.json",
            "a/b=+1",
            "=+1",
            "runs=",
            "stats[0=+1",
        ] {
            assert_eq!(amount(file), None, "{file}");
        }
    }

    #[test]
    fn keys_are_numbers_or_bytes() {
        let key = |key: &str, key_bytes| {
            let map = MapEntry {
                name: "flows".to_owned(),
                key_bytes,
                value_bytes: 8,
                is_program_array: false,
            };
            written_key(key, &map)
        };
        assert_eq!(key("0x10", 4).as_deref(), Ok("16"));
        assert_eq!(key("255", 1).as_deref(), Ok("255"));
        assert_eq!(key("0x0A0b0C", 3).as_deref(), Ok("0x0a0b0c"));
        for (wrong, bytes, says) in [
            ("256", 1, "a number of 1 bytes"),
            ("x", 4, "a number of 4 bytes"),
            ("0x0a0b", 3, "6 hexadecimal digits"),
            ("0x0a0b0x", 3, "6 hexadecimal digits"),
            ("17", 3, "6 hexadecimal digits"),
        ] {
            let error = key(wrong, bytes).expect_err(wrong);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn files_of_others_are_refused() {
        let right = r#"{"schema": 1, "expected": [{"program": "a", "input": "udp", "input_digest": "00",
            "code": 2, "length": 1, "packet": "00", "per_run": {"runs": 1}}]}"#;
        let known = parsed(right.as_bytes()).expect("it is right");
        assert_eq!(known[0].behaviour.packet, [0]);
        for (text, says) in [
            ("x", "not a file that --record-expected wrote"),
            (r#"{"schema": 1, "expected": []}"#, "it expects nothing"),
            ("{}", "missing field `schema`"),
            (
                &right.replace(": 1, \"exp", ": 2, \"exp"),
                "it has schema 2",
            ),
            (
                &right.replace("\"code\": 2,", ""),
                "it is damaged: missing field `code`",
            ),
            (
                &right.replace("\"packet\": \"00\"", "\"packet\": \"0\""),
                "hexadecimal",
            ),
        ] {
            let error = parsed(text.as_bytes()).expect_err(says);
            assert!(error.contains(says), "{error}");
            assert!(error.contains("--record-expected"), "{error}");
        }
    }

    #[test]
    fn digests_are_of_each_input() {
        let one = digest([&[1, 2][..], &[3]]);
        assert_eq!(one.len(), 16);
        assert_ne!(one, digest([&[1][..], &[2, 3]]));
    }
}
