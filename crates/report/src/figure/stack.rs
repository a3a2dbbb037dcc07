//! CPU time by part: a stacked bar per probe, on an axis from zero.

use std::fmt::Write;

use super::{
    axis::Axis,
    svg::{Svg, escape},
};

pub(crate) struct Stack {
    pub(crate) title: String,
    /// Unit of the values: `µs`.
    pub(crate) unit: String,
    /// Names of the parts, in the order of a bar's values.
    pub(crate) parts: Vec<String>,
    pub(crate) bars: Vec<Bar>,
}

pub(crate) struct Bar {
    pub(crate) name: String,
    /// Values of the parts, in the figure's unit.
    pub(crate) values: Vec<f64>,
    /// The 95 % interval of all together.
    pub(crate) ci95: Option<[f64; 2]>,
    /// All together, as text.
    pub(crate) total: String,
}

/// Pixels of a bar's height.
const HEIGHT: f64 = 14.0;

/// The figure: its legend, the bars, the axis.
pub(crate) fn render(stack: &Stack) -> String {
    let reach = |bar: &Bar| {
        let interval = bar.ci95.map_or(0.0, |ends| ends[1]);
        bar.values.iter().sum::<f64>().max(interval)
    };
    let axis = Axis::from_zero(stack.bars.iter().map(reach).fold(0.0, f64::max));
    let mut out = String::from("<p class=\"caption legend\">");
    for (place, part) in stack.parts.iter().enumerate() {
        let _ = write!(
            out,
            "<span class=\"key\"><i class=\"k-part hue{}\"></i> {}</span> ",
            hue(place),
            escape(part)
        );
    }
    let row = |bar: &Bar| {
        [
            format!("<code>{}</code>", escape(&bar.name)),
            plot(bar, stack, &axis),
            format!("<div class=\"value\"><b>{}</b></div>", escape(&bar.total)),
        ]
    };
    out + "</p>" + &axis.rows("rows", &stack.unit, stack.bars.iter().map(row))
}

/// Colours that are far from each other first.
fn hue(place: usize) -> usize {
    [1, 5, 0, 7][place % 4]
}

fn plot(bar: &Bar, stack: &Stack, axis: &Axis) -> String {
    let labels: Vec<String> = stack
        .parts
        .iter()
        .zip(&bar.values)
        .map(|(part, value)| format!("{part} {value:.2}"))
        .collect();
    let title = format!("{}: {} {}", bar.name, bar.total, stack.unit);
    let mut svg = Svg::filling("plot", &title, &labels.join(", "));
    axis.grid(&mut svg);
    svg.middle();
    let mut from = 0.0;
    for (place, value) in bar.values.iter().enumerate() {
        let ends = (axis.place(from), axis.place(from + value));
        if *value > 0.0 {
            let class = format!("part hue{}", hue(place));
            svg.band(&class, ends, -HEIGHT / 2.0, HEIGHT);
        }
        from += value;
    }
    if let Some([low, high]) = bar.ci95 {
        svg.line("whole", (axis.place(low), 0.0), (axis.place(high), 0.0));
    }
    svg.finish()
}
