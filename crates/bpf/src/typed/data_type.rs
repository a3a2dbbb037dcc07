//! A type of C data, without the pointers and names that only a compiler needs, and the values that bytes have by it.

use libbpf_rs::{
    Btf, HasSize as _,
    btf::{
        BtfKind, BtfType,
        types::{Array, Enum, Enum64, Float, Int, IntEncoding, MemberAttr, Struct, Union},
    },
};

use super::Value;

/// A type of data. Its values have a known number of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataType {
    /// A number without a sign or an `enum`, of so many bytes.
    Unsigned(usize),
    /// A number with a sign.
    Signed(usize),
    /// A pointer.
    Address,
    /// A `bool`.
    Bool,
    /// An array of `char`.
    Text(usize),
    /// Anything else: a union, a floating-point number, an array of bytes.
    Bytes(usize),
    /// An array of so many elements.
    List(Box<DataType>, usize),
    /// The members of a `struct`, or the variables of a section.
    Fields(Vec<Field>, usize),
}

/// A member of a `struct`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub(super) name: String,
    /// Bits before it.
    pub(super) offset: usize,
    /// Bits of a bit field.
    pub(super) bits: Option<u8>,
    pub(super) kind: DataType,
}

/// Depth of types in types at which the rest is bytes.
const DEEPEST: u32 = 16;

impl DataType {
    /// The type of data about which nothing but its length is known: a number where there are as many bytes as one has.
    pub fn unknown(bytes: usize) -> Self {
        match bytes {
            1 | 2 | 4 | 8 => DataType::Unsigned(bytes),
            _ => DataType::Bytes(bytes),
        }
    }

    /// A type of an object; `None` where it has no size, as `void` and functions.
    pub(super) fn from_btf(btf: &Btf<'_>, kind: BtfType<'_>) -> Option<Self> {
        Self::at_depth(btf, kind, 0)
    }

    fn at_depth(btf: &Btf<'_>, kind: BtfType<'_>, depth: u32) -> Option<Self> {
        let kind = kind.skip_mods_and_typedefs();
        Some(match kind.kind() {
            BtfKind::Int => {
                let int = Int::try_from(kind).ok()?;
                match int.encoding {
                    IntEncoding::Bool => DataType::Bool,
                    IntEncoding::Signed => DataType::Signed(int.size()),
                    _ => DataType::Unsigned(int.size()),
                }
            }
            BtfKind::Ptr => DataType::Address,
            BtfKind::Enum | BtfKind::Enum64 => DataType::Unsigned(size(kind)?),
            BtfKind::Array => Self::array(btf, &Array::try_from(kind).ok()?, depth)?,
            BtfKind::Struct if depth < DEEPEST => {
                let whole = Struct::try_from(kind).ok()?;
                let fields = whole.iter().map(|member| {
                    let (offset, bits) = match member.attr {
                        MemberAttr::Normal { offset } => (offset, None),
                        MemberAttr::BitField { size, offset } => (offset, Some(size)),
                    };
                    let kind = btf.type_by_id::<BtfType<'_>>(member.ty)?;
                    Some(Field {
                        name: member.name.unwrap_or_default().to_string_lossy().into(),
                        offset: offset as usize,
                        bits,
                        kind: Self::at_depth(btf, kind, depth + 1)?,
                    })
                });
                DataType::Fields(fields.collect::<Option<_>>()?, whole.size())
            }
            _ => DataType::Bytes(size(kind)?),
        })
    }

    fn array(btf: &Btf<'_>, array: &Array<'_>, depth: u32) -> Option<Self> {
        let element = array.contained_type();
        let is_char = named_char(element);
        let count = array.capacity();
        Some(match Self::at_depth(btf, element, depth + 1)? {
            one if one.bytes() == 1 && is_char => DataType::Text(count),
            DataType::Unsigned(1) | DataType::Signed(1) => DataType::Bytes(count),
            one => DataType::List(Box::new(one), count),
        })
    }

    /// Bytes of a value.
    pub fn bytes(&self) -> usize {
        match self {
            DataType::Unsigned(bytes)
            | DataType::Signed(bytes)
            | DataType::Text(bytes)
            | DataType::Bytes(bytes)
            | DataType::Fields(_, bytes) => *bytes,
            DataType::Bool => 1,
            DataType::Address => 8,
            DataType::List(one, count) => one.bytes().saturating_mul(*count),
        }
    }

    /// The value that bytes have; the bytes themselves where there are too few.
    pub fn value(&self, bytes: &[u8]) -> Value {
        let Some(own) = bytes.get(..self.bytes()) else {
            return Value::Bytes(bytes.to_vec());
        };
        match self {
            DataType::Unsigned(1..=8) => Value::Unsigned(word(own)),
            DataType::Signed(1..=8) => Value::Signed(signed(word(own), 8 * own.len())),
            DataType::Bool => Value::Bool(own[0] != 0),
            DataType::Address => Value::Address(word(own)),
            DataType::Text(_) => text(own),
            DataType::List(one, _) => {
                let step = one.bytes().max(1);
                Value::List(own.chunks(step).map(|part| one.value(part)).collect())
            }
            DataType::Fields(fields, _) => {
                let fields = fields.iter();
                let named = fields.map(|field| (field.name.clone(), field.value(own)));
                Value::Fields(named.collect())
            }
            DataType::Unsigned(_) | DataType::Signed(_) | DataType::Bytes(_) => {
                Value::Bytes(own.to_vec())
            }
        }
    }
}

impl Field {
    /// The member's value in the bytes of its `struct`.
    fn value(&self, bytes: &[u8]) -> Value {
        let Some(bits) = self.bits.map(usize::from) else {
            return self
                .kind
                .value(bytes.get(self.offset / 8..).unwrap_or_default());
        };
        // A bit field is at most 64 bits long, and may begin in the middle of a byte.
        let first = self.offset / 8;
        let mut whole = [0; 16];
        for (to, from) in whole.iter_mut().zip(bytes.iter().skip(first).take(9)) {
            *to = *from;
        }
        let mask = u64::MAX >> 64_usize.saturating_sub(bits).min(63);
        let number = (u128::from_le_bytes(whole) >> (self.offset % 8)) as u64 & mask;
        match self.kind {
            DataType::Signed(_) => Value::Signed(signed(number, bits)),
            DataType::Bool => Value::Bool(number != 0),
            _ => Value::Unsigned(number),
        }
    }
}

fn size(kind: BtfType<'_>) -> Option<usize> {
    match kind.kind() {
        BtfKind::Enum => Some(Enum::try_from(kind).ok()?.size()),
        BtfKind::Enum64 => Some(Enum64::try_from(kind).ok()?.size()),
        BtfKind::Float => Some(Float::try_from(kind).ok()?.size()),
        BtfKind::Union => Some(Union::try_from(kind).ok()?.size()),
        BtfKind::Struct => Some(Struct::try_from(kind).ok()?.size()),
        _ => None,
    }
}

/// True for `char`, also behind typedefs. `__u8` is an `unsigned char`.
fn named_char(kind: BtfType<'_>) -> bool {
    let kind = kind.skip_mods_and_typedefs();
    kind.name().is_some_and(|name| name == "char")
}

/// Little-endian bytes, at most 8.
fn word(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// A number of so many bits, the first of which is its sign.
fn signed(word: u64, bits: usize) -> i64 {
    let unused = 64_usize.saturating_sub(bits).min(63);
    (word << unused).cast_signed() >> unused
}

/// Characters up to a zero. Bytes that are no text stay bytes.
fn text(bytes: &[u8]) -> Value {
    let end = bytes.iter().position(|byte| *byte == 0);
    let own = &bytes[..end.unwrap_or(bytes.len())];
    match std::str::from_utf8(own) {
        Ok(text) => Value::Text(text.to_owned()),
        Err(_) => Value::Bytes(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, offset: usize, bits: Option<u8>, kind: DataType) -> Field {
        Field {
            name: name.to_owned(),
            offset,
            bits,
            kind,
        }
    }

    #[test]
    fn bytes_have_values_by_their_type() {
        let whole = DataType::Fields(
            vec![
                field("pid", 0, None, DataType::Signed(4)),
                field("low", 32, Some(3), DataType::Unsigned(4)),
                field("high", 35, Some(5), DataType::Signed(4)),
                field("name", 64, None, DataType::Text(4)),
                field(
                    "pair",
                    96,
                    None,
                    DataType::List(Box::new(DataType::Unsigned(2)), 2),
                ),
            ],
            16,
        );
        let bytes = [
            255,
            255,
            255,
            255,
            0b1111_1101,
            0,
            0,
            0,
            b'a',
            b'b',
            0,
            b'x',
            1,
            0,
            2,
            1,
        ];
        let text = whole.value(&bytes).to_string();
        assert_eq!(
            text,
            r#"{pid: -1, low: 5, high: -1, name: "ab", pair: [1, 258]}"#
        );
        assert_eq!(whole.value(&bytes[..3]), Value::Bytes(vec![255; 3]));
        assert_eq!(
            DataType::Text(2).value(&[0xff, 0]),
            Value::Bytes(vec![0xff, 0])
        );
        assert_eq!(DataType::Bool.value(&[2]), Value::Bool(true));
    }

    #[test]
    fn numbers_are_those_with_as_many_bytes() {
        assert_eq!(
            DataType::unknown(4).value(&[1, 2, 0, 0]),
            Value::Unsigned(513)
        );
        let eight = DataType::unknown(8).value(&[255; 8]);
        assert_eq!(eight, Value::Unsigned(u64::MAX));
        assert_eq!(
            DataType::unknown(3).value(&[1, 2, 3]),
            Value::Bytes(vec![1, 2, 3])
        );
    }
}
