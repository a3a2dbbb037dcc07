//! Parses shares and rates on the command line; error messages for both.

/// `1%`, `0.5 %` or `0.01`: a share above 0 and below 1.
pub fn share(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim(), 100.0),
        None => (text, 1.0),
    };
    let value: f64 = number
        .parse()
        .map_err(|_| "write a percentage, e.g. 1%".to_owned())?;
    let value = value / scale;
    if value > 0.0 && value < 1.0 {
        return Ok(value);
    }
    Err(if scale == 1.0 && value >= 1.0 {
        format!("it must be below 100%; for {number} percent write {number}%")
    } else {
        "it must be above 0% and below 100%, e.g. 1%".to_owned()
    })
}

/// More events than this no core sees in a second.
const MAX_EVENTS: f64 = 1e12;

/// `200k/s`, `200k`, `1.5M/s`, `500/s`: events a second. A bare number could be anything.
pub fn rate(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, a_second) = match text.strip_suffix("/s") {
        Some(number) => (number.trim(), true),
        None => (text, false),
    };
    let (number, scale) = match number.strip_suffix(['k', 'K', 'M']) {
        Some(rest) if number.ends_with('M') => (rest.trim(), 1e6),
        Some(rest) => (rest.trim(), 1e3),
        None => (number, 1.0),
    };
    let value: f64 = number
        .parse()
        .map_err(|_| "write events a second, e.g. 200/s, 200k/s or 200M/s".to_owned())?;
    if scale == 1.0 && !a_second && value > 0.0 {
        return Err(format!(
            "{number} has no unit: write {number}/s, {number}k/s or {number}M/s"
        ));
    }
    let value = value * scale;
    if value > 0.0 && value <= MAX_EVENTS {
        return Ok(value);
    }
    Err("it must be above 0 and possible on one core, e.g. 200k/s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(rate("200k/s"), Ok(200e3));
        assert_eq!(rate(" 200k "), Ok(200e3));
        assert_eq!(rate("1.5M/s"), Ok(1.5e6));
        assert_eq!(rate("500/s"), Ok(500.0));
        assert_eq!(
            rate("200"),
            Err("200 has no unit: write 200/s, 200k/s or 200M/s".to_owned())
        );
        for wrong in [
            "", "k", "/s", "0/s", "-5k", "NaN/s", "infM", "5G/s", "5m", "5 per s", "1e9M",
        ] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share(" 0.5 % "), Ok(0.005));
        assert_eq!(share("0.02"), Ok(0.02));
        for wrong in [
            "0", "0%", "-1%", "100%", "1", "5", "NaN", "inf", "", "%", "a%",
        ] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
