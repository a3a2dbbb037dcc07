//! The bounds of printed figures.

/// Prints figures and remembers how many broke their bounds.
#[derive(Default)]
pub(crate) struct BoundsCheck {
    pub(crate) broken: usize,
}

impl BoundsCheck {
    /// A share in percent, marked where it is outside `low..=high`.
    pub(crate) fn figure(&mut self, share: f64, low: f64, high: f64) -> String {
        let fine = (low..=high).contains(&share);
        self.broken += usize::from(!fine);
        format!("{:>7.2}{}", 100.0 * share, if fine { ' ' } else { '!' })
    }
}
