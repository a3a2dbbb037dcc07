//! Reads the values that `--set` gives to factors.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

use anyhow::{Context, Result, ensure};

/// The values between commas, each once.
pub(super) fn list<T: PartialEq>(values: &str, read: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    let mut list = Vec::new();
    for text in values.split(',').map(str::trim) {
        let value = read(text)?;
        ensure!(
            !list.contains(&value),
            "{text} is named twice, and a run measures each case once\n  Name it once"
        );
        list.push(value);
    }
    Ok(list)
}

/// A number in that range.
pub(super) fn within<T: FromStr + PartialOrd + Display>(
    text: &str,
    range: &RangeInclusive<T>,
) -> Result<T> {
    let value = text.parse().ok().filter(|value| range.contains(value));
    value.with_context(|| {
        format!(
            "{} is not a number from {} to {}",
            if text.is_empty() { "nothing" } else { text },
            range.start(),
            range.end()
        )
    })
}
