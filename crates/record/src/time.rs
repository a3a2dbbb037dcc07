//! Times of day, as records write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second of the year 9999, since 1970.
const LAST_S: u64 = 253_402_300_799;

/// Now, in UTC: `2026-11-29T11:34:21Z`.
pub fn now() -> String {
    rfc3339(SystemTime::now())
}

/// A time, likewise: the first or the last that has four digits of a year where it is beyond.
pub fn rfc3339(at: SystemTime) -> String {
    let last = UNIX_EPOCH + Duration::from_secs(LAST_S);
    humantime::format_rfc3339_seconds(at.clamp(UNIX_EPOCH, last)).to_string()
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
        let centuries = Duration::from_secs(2 * LAST_S);
        assert_eq!(rfc3339(UNIX_EPOCH - centuries), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(UNIX_EPOCH + centuries), "9999-12-31T23:59:59Z");
        assert!(seconds("").is_nan() && seconds("yesterday").is_nan());
    }
}
