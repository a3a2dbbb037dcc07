//! Contents of maps in files: JSON as `bpftool map dump --json` prints it, with bytes or numbers, or CSV, an entry a line.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    path::Path,
};

use bpfcost_bpf::program::MapEntry;
use serde_json::Value;

use bpfcost_text::number;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Syntax of a file of map entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// An object for each entry.
    Json,
    /// Columns `key` and `value`.
    Csv,
}

impl Syntax {
    /// That of a file, by the end of its name.
    pub(crate) fn from_path(path: &Path) -> Self {
        let end = path.extension().unwrap_or_default();
        if end.eq_ignore_ascii_case("csv") {
            Syntax::Csv
        } else {
            Syntax::Json
        }
    }

    /// Keys and values of a file for a map of these sizes, or why it has none.
    pub fn entries(self, text: &str, map: &MapEntry) -> Result<Entries, String> {
        match self {
            Syntax::Json => from_json(text, map),
            Syntax::Csv => from_csv(text, map),
        }
    }
}

fn from_json(text: &str, map: &MapEntry) -> Result<Entries, String> {
    let json: Value =
        serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    let entries = json.as_array().ok_or(
        "it is not a list of entries\n  Write [{\"key\": 1, \"value\": [\"0x07\", \"0x00\"]}], as bpftool map dump \
         --json does",
    )?;
    let entry = |(number, entry): (usize, &Value)| {
        let part = |name: &str, part: Option<&Value>, size: usize| {
            let part = part.ok_or_else(|| format!("entry {number} has no {name}"))?;
            bytes(part, size).map_err(|why| format!("the {name} of entry {number} {why}"))
        };
        // In a map with values for each CPU, all get that of the first.
        let of_cpu = entry["values"].get(0).and_then(|first| first.get("value"));
        Ok((
            part("key", entry.get("key"), map.key_bytes)?,
            part("value", entry.get("value").or(of_cpu), map.value_bytes)?,
        ))
    };
    (1..).zip(entries).map(entry).collect()
}

fn from_csv(text: &str, map: &MapEntry) -> Result<Entries, String> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let mut entries = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| format!("it is not CSV: {error}"))?;
        let line = record.position().map_or(1, csv::Position::line);
        let cells: Vec<&str> = record.iter().collect();
        let [key, value] = *cells else {
            return Err(format!(
                "line {line} has {}, not 2\n  Write an entry a line: its key, a comma, its value",
                number::plural(cells.len(), "cell"),
            ));
        };
        let is_head = entries.is_empty() && [key, value] == ["key", "value"];
        if !is_head {
            let part = |name: &str, part: &str, size: usize| {
                cell(part, size).map_err(|why| format!("the {name} of line {line} {why}"))
            };
            entries.push((
                part("key", key, map.key_bytes)?,
                part("value", value, map.value_bytes)?,
            ));
        }
    }
    Ok(entries)
}

/// A number, an address, or bytes in hexadecimal digits, apart by spaces or colons.
fn cell(text: &str, size: usize) -> Result<Vec<u8>, String> {
    if let Ok(number) = text.parse::<i64>() {
        return bytes(&number.into(), size);
    }
    let hexadecimal = |digits| u64::from_str_radix(digits, 16).ok();
    let number = text.strip_prefix("0x").and_then(hexadecimal);
    if let Some(number) = number.or_else(|| text.parse().ok()) {
        return bytes(&number.into(), size);
    }
    let list = if let Ok(address) = text.parse::<Ipv4Addr>() {
        address.octets().into()
    } else if let (16, Ok(address)) = (size, text.parse::<Ipv6Addr>()) {
        address.octets().into()
    } else {
        let words = text.split([' ', ':']).filter(|word| !word.is_empty());
        Value::from_iter(words)
    };
    bytes(&list, size).map_err(|why| {
        format!("{why}: {text:?}\n  Write a number, an IP address, or bytes like 0a 00 00 01")
    })
}

/// The bytes of a whole number, and what fills those beyond.
fn number(value: &Value) -> Option<([u8; 8], u8)> {
    if let Some(number) = value.as_u64() {
        return Some((number.to_le_bytes(), 0));
    }
    Some((value.as_i64()?.to_le_bytes(), 0xff))
}

/// A list of bytes, or a number in as many bytes as there are, the least first.
fn bytes(value: &Value, size: usize) -> Result<Vec<u8>, String> {
    if let Some((word, filled)) = number(value) {
        let (kept, cut) = word.split_at(size.min(word.len()));
        // The highest bit that is kept must not make it another number.
        let negative = filled == 0xff;
        let same_sign = !negative || kept.last().is_none_or(|byte| byte & 0x80 != 0);
        if cut.iter().any(|&byte| byte != filled) || !same_sign {
            return Err(format!("is {value}, which {size} bytes can't hold"));
        }
        let mut bytes = kept.to_vec();
        bytes.resize(size, filled);
        return Ok(bytes);
    }
    let byte = |one: &Value| match one.as_str() {
        Some(text) => u8::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok(),
        None => one.as_u64().and_then(|number| u8::try_from(number).ok()),
    };
    let bytes: Option<Vec<u8>> = value
        .as_array()
        .and_then(|all| all.iter().map(byte).collect());
    let bytes = bytes.ok_or("is neither a number nor a list of bytes")?;
    if bytes.len() != size {
        return Err(format!(
            "has {} bytes, and the map's has {size}",
            bytes.len()
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(key_bytes: usize, value_bytes: usize) -> MapEntry {
        MapEntry {
            name: "limits".to_owned(),
            key_bytes,
            value_bytes,
            is_program_array: false,
        }
    }

    fn read(text: &str) -> Result<Entries, String> {
        Syntax::Json.entries(text, &map(2, 4))
    }

    #[test]
    fn bytes_and_numbers_are_entries() {
        let text = r#"[
            {"key": ["0x01", "0x02"], "value": ["ff", "00", "00", "0a"]},
            {"key": 258, "value": -1, "formatted": {}},
            {"key": [3, 0], "values": [{"cpu": 0, "value": 7}, {"cpu": 1, "value": 8}]}
        ]"#;
        let wanted = [
            (vec![1, 2], vec![0xff, 0, 0, 0x0a]),
            (vec![2, 1], vec![0xff; 4]),
            (vec![3, 0], vec![7, 0, 0, 0]),
        ];
        assert_eq!(read(text).expect("entries"), wanted);
    }

    #[test]
    fn numbers_fill_a_value_or_do_not_fit() {
        let value = |number: &str, bytes| {
            let text = format!("[{{\"key\": 1, \"value\": {number}}}]");
            let all = Syntax::Json.entries(&text, &map(1, bytes));
            all.map(|all| all[0].1.clone())
        };
        assert_eq!(value("-128", 1), Ok(vec![0x80]));
        assert_eq!(value("255", 1), Ok(vec![0xff]));
        assert_eq!(value("-2", 10), Ok([vec![0xfe], vec![0xff; 9]].concat()));
        let most = u64::MAX.to_string();
        assert_eq!(value(&most, 10), Ok([vec![0xff; 8], vec![0; 2]].concat()));
        for (number, bytes) in [("-129", 1), ("-200", 1), ("256", 1), (&most, 4)] {
            assert!(value(number, bytes).is_err(), "{number} in {bytes}");
        }
    }

    #[test]
    fn wrong_entries_are_named() {
        for (text, says) in [
            ("x", "not JSON"),
            ("{}", "not a list"),
            (r#"[{"value": 1}]"#, "entry 1 has no key"),
            (
                r#"[{"key": 1, "value": 1}, {"key": 1}]"#,
                "entry 2 has no value",
            ),
            (
                r#"[{"key": [1], "value": 1}]"#,
                "the key of entry 1 has 1 bytes, and the map's has 2",
            ),
            (
                r#"[{"key": 65536, "value": 1}]"#,
                "which 2 bytes can't hold",
            ),
            (
                r#"[{"key": [1, 256], "value": 1}]"#,
                "neither a number nor a list",
            ),
            (
                r#"[{"key": 1.5, "value": 1}]"#,
                "neither a number nor a list",
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_line_of_csv_is_an_entry() {
        assert_eq!(
            [
                Syntax::from_path(Path::new("a.csv")),
                Syntax::from_path(Path::new("csv"))
            ],
            [Syntax::Csv, Syntax::Json]
        );
        let text = "key,value\n# of the office\n10.0.0.1, 258\n0a:00:00:02,0x0102\n\n\"0x0a 0 0 3\",ff ff\n-1,-1\n";
        let wanted = [
            (vec![10, 0, 0, 1], vec![2, 1]),
            (vec![10, 0, 0, 2], vec![2, 1]),
            (vec![10, 0, 0, 3], vec![0xff; 2]),
            (vec![0xff; 4], vec![0xff; 2]),
        ];
        let read = Syntax::Csv.entries(text, &map(4, 2));
        assert_eq!(read.expect("entries"), wanted);
        let long = Syntax::Csv.entries("2001:db8::1,18446744073709551615", &map(16, 8));
        let address = [&[0x20, 0x01, 0x0d, 0xb8][..], &[0; 11], &[1]].concat();
        assert_eq!(long.expect("entries"), [(address, vec![0xff; 8])]);
        assert_eq!(Syntax::Csv.entries("", &map(4, 2)), Ok(vec![]));
    }

    #[test]
    fn wrong_lines_of_csv_are_named() {
        for (text, says) in [
            ("1,2\n3\n", "line 2 has 1 cell, not 2"),
            ("1,2,3", "line 1 has 3 cells"),
            ("1,2\nkey,value", "the key of line 2 is neither a number"),
            ("1,", "the value of line 1 has 0 bytes, and the map's has 2"),
            ("10.0.0.1,10.0.0.1", "the value of line 1 has 4 bytes"),
            ("1,65536", "the value of line 1 is 65536, which 2 bytes"),
            (
                "10.0.0.300,1",
                "the key of line 1 is neither a number nor a list of bytes: \"10.0.0.300\"",
            ),
            ("2001:db8::1,1", "the key of line 1 is neither"),
        ] {
            let error = Syntax::Csv.entries(text, &map(4, 2)).expect_err(text);
            assert!(error.contains(says), "{error}");
        }
    }
}
