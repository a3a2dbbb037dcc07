//! Contents of maps in files: JSON as `bpftool map dump --json` prints it, with bytes or numbers.

use bpfcost_bpf::program::MapEntry;
use serde_json::Value;

/// Keys and values.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Keys and values of a file for a map of these sizes, or why it has none.
pub(crate) fn entries(text: &str, map: &MapEntry) -> Result<Entries, String> {
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

    fn read(text: &str) -> Result<Entries, String> {
        let map = MapEntry {
            name: "limits".to_owned(),
            key_bytes: 2,
            value_bytes: 4,
            is_program_array: false,
        };
        entries(text, &map)
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
        let map = |value_bytes| MapEntry {
            name: "limits".to_owned(),
            key_bytes: 1,
            value_bytes,
            is_program_array: false,
        };
        let value = |number: &str, bytes| {
            let text = format!("[{{\"key\": 1, \"value\": {number}}}]");
            entries(&text, &map(bytes)).map(|all| all[0].1.clone())
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
}
