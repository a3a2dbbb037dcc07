//! Times as a person would type them behind `--time`.

/// At least this many seconds, as `--time` takes them: `34s`, `12m`, `4h50m`.
pub fn time_option(seconds: f64) -> String {
    let seconds = seconds.max(0.0).ceil();
    let minutes = (seconds / 60.0).ceil();
    if seconds < 120.0 {
        format!("{seconds}s")
    } else if minutes < 120.0 {
        format!("{minutes}m")
    } else {
        // To ten minutes: no forecast is better.
        let minutes = 10.0 * (minutes / 10.0).ceil();
        let hours = (minutes / 60.0).floor();
        match minutes - 60.0 * hours {
            0.0 => format!("{hours}h"),
            rest => format!("{hours}h{rest}m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_what_is_read() {
        for (seconds, option) in [
            (0.2, "1s"),
            (33.1, "34s"),
            (119.0, "119s"),
            (119.5, "2m"),
            (601.0, "11m"),
            (7140.0, "119m"),
            (7141.0, "2h"),
            (17_174.0, "4h50m"),
            (86_400.0, "24h"),
        ] {
            assert_eq!(time_option(seconds), option);
        }
    }
}
