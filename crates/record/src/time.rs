//! Times of day, as records write them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in UTC: `2026-11-29T11:34:21Z`.
pub fn now() -> String {
    rfc3339(SystemTime::now())
}

/// A time, likewise.
pub fn rfc3339(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

/// Seconds since 1970; NaN of what is no time.
pub(super) fn seconds(rfc3339: &str) -> f64 {
    let time = humantime::parse_rfc3339_weak(rfc3339).ok();
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(f64::NAN, |since| since.as_secs() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_was_written() {
        assert_eq!(rfc3339(UNIX_EPOCH), "1970-01-01T00:00:00Z");
        assert_eq!(seconds("1970-01-02T00:00:01Z"), 86_401.0);
        assert_eq!(seconds("1970-01-02T00:00:01.9Z"), 86_401.0);
        assert!(seconds("").is_nan() && seconds("yesterday").is_nan());
    }
}
