//! Values of data, for people and for programs.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeMap as _};

/// A value. As JSON, [`Value::Bytes`] are text in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A number without a sign.
    Unsigned(u64),
    /// A number with a sign.
    Signed(i64),
    /// An address, as JSON the text `0x…`.
    Address(u64),
    /// True or false.
    Bool(bool),
    /// Text, which may hold anything.
    Text(String),
    /// Bytes of no known type.
    Bytes(Vec<u8>),
    /// Elements of an array.
    List(Vec<Value>),
    /// Members by name, in their order.
    Fields(Vec<(String, Value)>),
}

impl Value {
    /// Returns true if all of it is zero, or empty.
    pub fn is_zero(&self) -> bool {
        match self {
            Value::Unsigned(number) | Value::Address(number) => *number == 0,
            Value::Signed(number) => *number == 0,
            Value::Bool(is_true) => !is_true,
            Value::Text(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.iter().all(|byte| *byte == 0),
            Value::List(all) => all.iter().all(Value::is_zero),
            Value::Fields(all) => all.iter().all(|(_, value)| value.is_zero()),
        }
    }

    /// The sum of this value and another of the same type: of their numbers. Of what is no number, the first that is not
    /// zero stays.
    pub fn plus(self, other: Value) -> Value {
        match (self, other) {
            (Value::Unsigned(a), Value::Unsigned(b)) => Value::Unsigned(a.wrapping_add(b)),
            (Value::Signed(a), Value::Signed(b)) => Value::Signed(a.wrapping_add(b)),
            (Value::Bool(a), Value::Bool(b)) => Value::Bool(a || b),
            (Value::List(a), Value::List(b)) => {
                Value::List(a.into_iter().zip(b).map(|(a, b)| a.plus(b)).collect())
            }
            (Value::Fields(a), Value::Fields(b)) => {
                let both = a.into_iter().zip(b);
                Value::Fields(both.map(|((name, a), (_, b))| (name, a.plus(b))).collect())
            }
            (a, b) if a.is_zero() => b,
            (a, _) => a,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(number) => write!(f, "{number}"),
            Value::Signed(number) => write!(f, "{number}"),
            Value::Address(address) => write!(f, "{address:#x}"),
            Value::Bool(is_true) => write!(f, "{is_true}"),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Bytes(bytes) => f.write_str(&hex(bytes)),
            Value::List(all) => {
                f.write_str("[")?;
                separated(f, all.iter(), |f, value| write!(f, "{value}"))?;
                f.write_str("]")
            }
            Value::Fields(all) => {
                f.write_str("{")?;
                separated(f, all.iter(), |f, (name, value)| {
                    write!(f, "{name}: {value}")
                })?;
                f.write_str("}")
            }
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Unsigned(number) => serializer.serialize_u64(*number),
            Value::Signed(number) => serializer.serialize_i64(*number),
            Value::Address(_) => serializer.collect_str(self),
            Value::Bool(is_true) => serializer.serialize_bool(*is_true),
            Value::Text(text) => serializer.serialize_str(text),
            Value::Bytes(bytes) => serializer.serialize_str(&hex(bytes)),
            Value::List(all) => serializer.collect_seq(all),
            Value::Fields(all) => {
                let mut map = serializer.serialize_map(Some(all.len()))?;
                for (name, value) in all {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

fn separated<'a, T: 'a>(
    f: &mut fmt::Formatter<'_>,
    all: impl Iterator<Item = &'a T>,
    mut write: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, one) in all.enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write(f, one)?;
    }
    Ok(())
}

/// Two hexadecimal digits a byte.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_numbers() {
        let one = |count, name: &str| {
            Value::Fields(vec![
                ("count".to_owned(), Value::Unsigned(count)),
                ("name".to_owned(), Value::Text(name.to_owned())),
            ])
        };
        assert_eq!(one(1, "").plus(one(2, "a")), one(3, "a"));
        assert!(one(0, "").is_zero() && !one(0, "a").is_zero());
        let list = |number| Value::List(vec![Value::Signed(number); 2]);
        assert_eq!(list(-3).plus(list(1)), list(-2));
    }
}
