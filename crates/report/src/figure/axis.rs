//! Axes: from values to percent of the width, with round ticks.

use super::svg::Svg;
use bpfcost_text::number;

#[derive(Clone, Debug)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    scale: AxisScale,
    /// Value and label.
    ticks: Vec<(f64, String)>,
}

/// Map from values to the width.
#[derive(Clone, Copy, Debug)]
enum AxisScale {
    Linear,
    /// Linear up to about this size, and logarithmic beyond.
    Bent(f64),
    /// Logarithmic; for values above zero.
    Log,
}

/// Ticks are at least this many percent of the width apart.
const APART: f64 = 20.0;
/// Counts below an axis are at least this many percent apart.
const NEAR: f64 = 6.5;
/// The last part of the width stays free, so that nothing ends at the very edge.
const FREE: f64 = 0.04;

impl Axis {
    pub(crate) fn from_zero(most: f64) -> Self {
        let high = if most.is_finite() && most > 0.0 {
            most
        } else {
            1.0
        };
        let step = number::round_step(high / 5.0);
        let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
        let ticks = (0..=6)
            .map(|index| f64::from(index) * step)
            .filter(|value| *value <= high * (1.0 + FREE))
            .map(|value| (value, number::fixed(value, decimals)))
            .collect();
        Axis {
            low: 0.0,
            high: high * (1.0 + FREE),
            scale: AxisScale::Linear,
            ticks,
        }
    }

    /// Signed percentages: linear near zero and logarithmic beyond, so that `margin` and an effect
    /// a thousand times its size both show.
    pub(crate) fn for_percentages(low: f64, high: f64, margin: f64) -> Self {
        let bend = if margin > 0.0 { margin } else { 1.0 };
        let mut axis = Axis {
            low: low.min(-2.0 * bend),
            high: high.max(2.0 * bend),
            scale: AxisScale::Bent(bend),
            ticks: Vec::new(),
        };
        let room = (axis.bent(axis.high) - axis.bent(axis.low)) * FREE;
        let (low, high) = (axis.bent(axis.low) - room, axis.bent(axis.high) + room);
        (axis.low, axis.high) = (low.sinh() * bend, high.sinh() * bend);
        let decades = (-2..9).map(|power| 10f64.powi(power));
        let steps = [1.0, 3.0, 5.0, 2.0];
        let round = steps
            .iter()
            .flat_map(|step| decades.clone().map(move |decade| step * decade));
        // What matters most comes first; what finds no room is left out.
        let wanted = [0.0, bend]
            .into_iter()
            .chain(round.filter(|size| *size > bend));
        for size in wanted {
            for value in [size, -size] {
                axis.tick(value);
            }
        }
        axis
    }

    /// Named values by magnitude, each with a tick where there is room.
    pub(crate) fn for_places(places: &[(f64, &str)]) -> Self {
        let mut axis = Axis::logarithmic(places.iter().map(|place| place.0));
        for &(value, name) in places {
            axis.tick_at(value, name.to_owned(), NEAR);
        }
        axis
    }

    /// Magnitudes, with round ticks that `label` names, at least `apart` percent from each other.
    pub(crate) fn for_magnitudes(
        values: impl Iterator<Item = f64>,
        apart: f64,
        label: impl Fn(f64) -> String,
    ) -> Self {
        let mut axis = Axis::logarithmic(values);
        // What is rounder comes first; what finds no room is left out.
        for digits in [1.0, 5.0, 2.0, 3.0, 7.0, 1.5, 4.0, 6.0, 8.0, 9.0, 2.5] {
            for power in -3..16 {
                let value = digits * 10f64.powi(power);
                axis.tick_at(value, label(value), apart);
            }
        }
        axis
    }

    fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite() && *value > 0.0)
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| {
                (low.min(value), high.max(value))
            });
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        // One value alone stands in the middle.
        let room = ((high / low).ln() * FREE).max(0.2);
        Axis {
            low: low * (-room).exp(),
            high: high * room.exp(),
            scale: AxisScale::Log,
            ticks: Vec::new(),
        }
    }

    /// A tick, unless it is beyond the ends or within `apart` percent of another.
    fn tick_at(&mut self, value: f64, label: String, apart: f64) {
        let place = self.place(value);
        let beside = |other: &(f64, String)| (self.place(other.0) - place).abs() < apart;
        if (self.low..=self.high).contains(&value) && !self.ticks.iter().any(beside) {
            self.ticks.push((value, label));
        }
    }

    fn tick(&mut self, value: f64) {
        let label = number::signed(value, number::plain_decimals(value));
        let label = if label.contains('.') {
            label.trim_end_matches('0').trim_end_matches('.')
        } else {
            &label
        };
        self.tick_at(value, format!("{label}{}%", number::HOLD), APART);
    }

    fn bent(&self, value: f64) -> f64 {
        match self.scale {
            AxisScale::Linear => value,
            AxisScale::Bent(bend) => (value / bend).asinh(),
            AxisScale::Log => value.ln(),
        }
    }

    /// Position of a value in percent of the width; clamped to the width.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let (low, high) = (self.bent(self.low), self.bent(self.high));
        let share = (self.bent(value) - low) / (high - low);
        if share.is_finite() {
            (share * 100.0).clamp(0.0, 100.0)
        } else {
            0.0
        }
    }

    /// Lines through the ticks of a plot.
    pub(crate) fn grid(&self, svg: &mut Svg) {
        for (value, _) in &self.ticks {
            let class = if *value == 0.0 { "zero" } else { "grid" };
            svg.upright(class, self.place(*value));
        }
    }

    /// The ticks: where they stand, in percent, and their labels.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ticks
            .iter()
            .map(|(value, label)| (self.place(*value), label.as_str()))
    }

    /// Plots along it, each with its label before and its value behind it, as HTML; the axis below them.
    pub(crate) fn rows(
        &self,
        class: &str,
        unit: &str,
        rows: impl Iterator<Item = [String; 3]>,
    ) -> String {
        let row = |[label, plot, value]: [String; 3]| {
            format!(
                "<div class=\"row\"><div class=\"label\">{label}</div><div class=\"box\">{plot}</div>{value}</div>"
            )
        };
        format!(
            "<div class=\"{class}\">{}<div class=\"row foot\"><div class=\"label\"></div><div class=\"box\">{}</div>\
             </div></div>",
            rows.map(row).collect::<String>(),
            self.labels(unit)
        )
    }

    /// The labels of the ticks, as an SVG of their own below the plots.
    pub(crate) fn labels(&self, unit: &str) -> String {
        let mut svg = Svg::quiet("axis", 20.0);
        for (value, label) in &self.ticks {
            let place = self.place(*value);
            let anchor = match place {
                place if place < 4.0 => "start",
                place if place > 96.0 => "end",
                _ => "middle",
            };
            let label = match (*value == 0.0, unit) {
                (true, unit) if !unit.is_empty() => format!("{label} {unit}"),
                _ => label.clone(),
            };
            svg.text(anchor, (place, 14.0), &label);
        }
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_inside() {
        for most in [0.0, 5.0, 859.0, 1e300, f64::NAN, f64::INFINITY, -3.0] {
            let axis = Axis::from_zero(most);
            assert!((0.0..=100.0).contains(&axis.place(most)), "{most}");
            assert!(axis.ticks.len() >= 2, "{most}: {:?}", axis.ticks);
        }
    }

    #[test]
    fn magnitudes_have_round_ticks_inside() {
        for values in [
            vec![2.7e6, 1.3e9],
            vec![8.1e6, 9.4e6],
            vec![5.0],
            vec![],
            vec![f64::NAN, 0.0],
        ] {
            let axis =
                Axis::for_magnitudes(values.iter().copied(), 12.0, |value| value.to_string());
            assert!(!axis.ticks.is_empty(), "{values:?}");
            let mut places: Vec<f64> = axis.ticks().map(|tick| tick.0).collect();
            places.sort_by(f64::total_cmp);
            assert!(
                places.windows(2).all(|pair| pair[1] - pair[0] >= 12.0),
                "{places:?}"
            );
            assert!(
                values
                    .iter()
                    .all(|value| (0.0..=100.0).contains(&axis.place(*value)))
            );
        }
        let names = ["1", "2", "4", "8", "10", "16", "20", "32", "40"];
        let axis = Axis::for_places(&names.map(|name| (name.parse().unwrap(), name)));
        let labels: Vec<&str> = axis.ticks().map(|tick| tick.1).collect();
        assert_eq!(labels, ["1", "2", "4", "8", "16", "32"]);
        assert!((axis.place(4.0) * 2.0 - axis.place(2.0) - axis.place(8.0)).abs() < 1e-9);
    }

    #[test]
    fn the_margin_and_large_effects_both_show() {
        let axis = Axis::for_percentages(-80.0, 820.0, 1.0);
        assert!(axis.place(1.0) - axis.place(-1.0) > 8.0);
        assert!(axis.place(820.0) > 90.0 && axis.place(-80.0) < 10.0);
        let mut places: Vec<f64> = axis.ticks.iter().map(|tick| axis.place(tick.0)).collect();
        places.sort_by(f64::total_cmp);
        assert!(
            places.windows(2).all(|pair| pair[1] - pair[0] >= APART),
            "{places:?}"
        );
        for label in ["0\u{A0}%", "+10\u{A0}%", "−10\u{A0}%", "+1,000\u{A0}%"] {
            assert!(
                axis.ticks.iter().any(|tick| tick.1 == label),
                "{:?}",
                axis.ticks
            );
        }
        let axis = Axis::for_percentages(0.0, 0.0, 0.0);
        assert!((axis.place(0.0) - 50.0).abs() < 1e-6);
    }
}
