//! The costs of the slices of a batch, kept small: a record holds hundreds of thousands of them.

use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The resolution of stored slices: each step is 0.02 % more than the one below it.
const STEP: f64 = 2e-4;

/// Most bytes of a step: with so many, a slice can be 10¹⁸⁰ times the least one.
const STEP_BYTES: usize = 3;

/// The cost of an operation in each slice of a batch, in order.
///
/// Kept and written as the least of them, and by how many steps of 0.02 % each is above it; `65.2 AAAD` is the least,
/// and the steps of three slices, each a LEB128 number, in base64.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slices {
    least: f64,
    steps: Vec<u8>,
}

impl Slices {
    /// Values above 0; there are no slices if one is not.
    pub fn new(values: &[f64]) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let usable = values.iter().all(|value| value.is_finite()) && least > 0.0;
        if values.is_empty() || !usable {
            return Slices::default();
        }
        let most = (1 << (7 * STEP_BYTES)) - 1;
        let mut steps = Vec::with_capacity(2 * values.len());
        for value in values {
            let mut left = (((value / least).ln() / STEP).round() as u32).min(most);
            while left > 0x7f {
                steps.push(left as u8 | 0x80);
                left >>= 7;
            }
            steps.push(left as u8);
        }
        Slices { least, steps }
    }

    /// Returns whether the batch was not cut.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The values, each within 0.01 % of what was measured.
    pub fn values(&self) -> impl Iterator<Item = f64> + '_ {
        let step = |bytes: &[u8]| {
            let bits = bytes.iter().rev().map(|byte| u32::from(byte & 0x7f));
            bits.fold(0, |step, bits| step << 7 | bits)
        };
        let value = move |bytes| self.least * (f64::from(step(bytes)) * STEP).exp();
        numbers(&self.steps).map(value)
    }
}

/// The bytes of each LEB128 number: the last one has no high bit.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| byte & 0x80 == 0)
}

impl Serialize for Slices {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let steps = BASE64_STANDARD_NO_PAD.encode(&self.steps);
        serializer.collect_str(&format_args!("{} {steps}", self.least))
    }
}

impl<'de> Deserialize<'de> for Slices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        read(&text).ok_or_else(|| D::Error::custom("slices are not as this program writes them"))
    }
}

fn read(text: &str) -> Option<Slices> {
    let (least, steps) = text.split_once(' ')?;
    let least: f64 = least.parse().ok()?;
    let steps = BASE64_STANDARD_NO_PAD.decode(steps).ok()?;
    let whole = steps.last().is_none_or(|byte| byte & 0x80 == 0);
    let short = numbers(&steps).all(|bytes| bytes.len() <= STEP_BYTES);
    let usable = least.is_finite() && (least > 0.0 || steps.is_empty());
    (whole && short && usable).then_some(Slices { least, steps })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(values in prop::collection::vec(1e-3..1e6f64, 0..300)) {
            let slices = Slices::new(&values);
            let text = serde_json::to_string(&slices).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Slices>(&text).unwrap(), &slices);
            prop_assert_eq!(slices.values().count(), values.len());
            for (kept, value) in slices.values().zip(&values) {
                prop_assert!((kept / value - 1.0).abs() < 1.01e-4, "{} {}", kept, value);
            }
        }

        #[test]
        fn no_text_is_a_panic(text in ".{0,40}", steps in "[A-Za-z0-9+/]{0,20}") {
            let _ = read(&text);
            let _ = read(&format!("65.2 {steps}"));
        }
    }

    #[test]
    fn slices_without_sense_are_none() {
        for values in [&[1.0, f64::NAN][..], &[0.0, 1.0], &[-1.0], &[]] {
            assert!(Slices::new(values).is_empty(), "{values:?}");
        }
        for text in [
            "",
            "65.2",
            "65.2 A",
            "x AAMF",
            "-1 AAMF",
            "65.2 gA",
            "65.2 gICAAA",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        let three = Slices::new(&[65.2, 65.2, 65.239]);
        assert_eq!(serde_json::to_string(&three).unwrap(), "\"65.2 AAAD\"");
    }

    /// A quiet batch takes about a byte for each slice.
    #[test]
    fn slices_are_kept_small() {
        let values: Vec<f64> = (0..256)
            .map(|slice| 65.0 + f64::from(slice % 8) / 8.0)
            .collect();
        let text = serde_json::to_string(&Slices::new(&values)).unwrap();
        assert!(text.len() < 400, "{}", text.len());
    }
}
