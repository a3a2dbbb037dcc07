//! Curves over a number of threads, or a size, with both axes logarithmic: doubling is the same distance
//! everywhere, and equal scaling has the same slope everywhere.
//!
//! Each name has its colour and its shape on the whole page. A distribution is turned: its values go to the right, and
//! shares of them up.

use std::fmt::Write;

use super::{
    axis::Axis,
    svg::{Svg, escape},
};
use crate::{scaling::RateUnit, section::Figure};

/// Pixels of the plot's height, and of one of several small ones.
const HEIGHT: [f64; 2] = [300.0, 170.0];
/// Pixels between the labels of the upright axis.
const APART: f64 = 24.0;
/// Percent of the width between labels of rates that go to the right.
const BESIDE: f64 = 14.0;
/// Colours; more names share them.
const HUES: usize = 8;
/// Shapes of marks, around their place: a circle, a square, a triangle, a diamond.
const SHAPES: [&str; 4] = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
    "M-3.6-3.6h7.2v7.2h-7.2Z",
    "M0-4.8 4.7 3.6h-9.4Z",
    "M0-5.2 5.2 0 0 5.2-5.2 0Z",
];
const RING: &str = "M-8.5 0a8.5 8.5 0 1 0 17 0a8.5 8.5 0 1 0-17 0Z";

#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Name.
    pub(crate) series: String,
    /// Decides its colour and its shape.
    pub(crate) hue: usize,
    /// Points from left to right.
    pub(crate) points: Vec<Point>,
}

/// A point of a curve.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// Position: a number of threads, or another size.
    pub(crate) at: f64,
    /// Name of the position.
    pub(crate) place: String,
    /// Operations of all together, or whatever the curve shows.
    pub(crate) rate: f64,
    /// The 95 % interval of `rate`.
    pub(crate) ci95: Option<[f64; 2]>,
    /// True for the knee of the curve.
    pub(crate) knee: bool,
}

/// Curves of one figure.
#[derive(Default)]
pub(crate) struct Plot {
    /// Title, a few words.
    pub(crate) title: String,
    /// Unit in which rates are shown.
    pub(crate) unit: RateUnit,
    /// Name of the axis of rates: `M pairs/s`.
    pub(crate) rates: String,
    /// Name of the axis of positions: `threads`.
    pub(crate) over: String,
    /// Number of CPUs of the machine.
    pub(crate) cpus: Option<u32>,
    /// True if rates go to the right, and positions up.
    pub(crate) turned: bool,
    /// The curves, in the order of the legend.
    pub(crate) lines: Vec<Series>,
    /// True for one of several small figures.
    pub(crate) small: bool,
}

/// The figure under its title: its legend, the plot, its axes.
pub(crate) fn figure(plot: &Plot) -> Figure {
    let points = || {
        plot.lines
            .iter()
            .flat_map(|line| line.points.iter().filter(is_drawable))
    };
    let mut places: Vec<(f64, &str)> = points()
        .map(|point| (point.at, point.place.as_str()))
        .collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.dedup();
    let height = HEIGHT[usize::from(plot.small)];
    let at = Axis::for_places(&places);
    let reach = points().flat_map(|point| point.ci95.into_iter().flatten().chain([point.rate]));
    let apart = if plot.turned {
        BESIDE
    } else {
        APART / height * 100.0
    };
    let rates = Axis::for_magnitudes(reach, apart, |rate| plot.unit.tick(rate));
    let frame = Frame {
        at,
        rates,
        turned: plot.turned,
        height,
    };
    let mut names = [plot.rates.as_str(), plot.over.as_str()];
    if plot.turned {
        names.reverse();
    }
    let markup = format!(
        "<div class=\"curves\">{}<div class=\"axisname\">{}</div><div class=\"chart\">{}{}<span></span>{}</div>\
         <div class=\"axisname over\">{}</div></div>",
        legend(plot),
        escape(names[0]),
        frame.scale(),
        body(plot, &frame),
        frame.across().labels(""),
        escape(names[1])
    );
    let title = plot.title.clone();
    Figure { title, markup }
}

fn is_drawable(point: &&Point) -> bool {
    point.rate.is_finite() && point.rate > 0.0
}

struct Frame {
    at: Axis,
    rates: Axis,
    turned: bool,
    height: f64,
}

impl Frame {
    fn across(&self) -> &Axis {
        if self.turned { &self.rates } else { &self.at }
    }

    fn up(&self) -> &Axis {
        if self.turned { &self.at } else { &self.rates }
    }

    /// Position of a rate: percent of the width, pixels of the height.
    fn place(&self, at: f64, rate: f64) -> (f64, f64) {
        let (at, rate) = (self.at.place(at), self.rates.place(rate));
        if self.turned {
            (rate, self.level(at))
        } else {
            (at, self.level(rate))
        }
    }

    fn level(&self, percent: f64) -> f64 {
        self.height * (1.0 - percent / 100.0)
    }

    /// The labels of the upright axis.
    fn scale(&self) -> String {
        let mut svg = Svg::quiet("axis", self.height);
        for (place, label) in self.up().ticks() {
            svg.text("end", (100.0, self.level(place) + 4.0), label);
        }
        svg.finish()
    }
}

fn body(plot: &Plot, frame: &Frame) -> String {
    let mut svg = Svg::new("lines", frame.height, &plot.title, &description(plot));
    for (place, _) in frame.up().ticks() {
        svg.level("grid", frame.level(place));
    }
    frame.across().grid(&mut svg);
    if let Some(cpus) = plot.cpus {
        svg.upright("cpus", frame.at.place(f64::from(cpus)));
    }
    for line in &plot.lines {
        curve(&mut svg, line, frame);
    }
    for line in &plot.lines {
        marks(&mut svg, line, frame, plot);
    }
    svg.finish()
}

/// The line through the points.
fn curve(svg: &mut Svg, line: &Series, frame: &Frame) {
    let points = line.points.iter().filter(is_drawable);
    let places: Vec<(f64, f64)> = points
        .map(|point| frame.place(point.at, point.rate))
        .collect();
    for ends in places.windows(2) {
        svg.line(&format!("curve hue{}", line.hue % HUES), ends[0], ends[1]);
    }
}

/// The marks of the points, over all lines.
fn marks(svg: &mut Svg, line: &Series, frame: &Frame, plot: &Plot) {
    let hue = line.hue % HUES;
    let class = format!("spot hue{hue}");
    for point in line.points.iter().filter(is_drawable) {
        let place = frame.place(point.at, point.rate);
        if let Some(ends) = point.ci95 {
            let [low, high] = ends.map(|end| frame.place(point.at, end));
            svg.line(&format!("reach hue{hue}"), low, high);
        }
        if point.knee {
            svg.mark(&format!("knee hue{hue}"), place, RING, "");
        }
        svg.mark(&class, place, shape(line), &words(line, point, plot));
    }
}

fn shape(line: &Series) -> &'static str {
    SHAPES[line.hue % SHAPES.len()]
}

/// `percpu, 8 threads: 103 M pairs/s (knee)`.
fn words(line: &Series, point: &Point, plot: &Plot) -> String {
    format!(
        "{}, {} {}: {} {}{}",
        line.series,
        point.place,
        plot.over,
        plot.unit.plain(point.rate),
        plot.rates,
        if point.knee { " (knee)" } else { "" }
    )
}

fn description(plot: &Plot) -> String {
    let mut out = String::new();
    for line in &plot.lines {
        let points = line.points.iter().filter(is_drawable);
        let points = points.map(|point| {
            let knee = if point.knee { " (knee)" } else { "" };
            format!("{} {}{knee}", point.place, plot.unit.plain(point.rate))
        });
        let points: Vec<String> = points.collect();
        let _ = write!(
            out,
            "{}, {} {} {}: {}. ",
            line.series,
            plot.rates,
            if plot.turned { "by share" } else { "by" },
            plot.over,
            points.join(", ")
        );
    }
    out.trim_end().to_owned()
}

fn legend(plot: &Plot) -> String {
    let mut seen: Vec<&str> = Vec::new();
    let mut keys = String::new();
    for line in &plot.lines {
        if seen.contains(&line.series.as_str()) {
            continue;
        }
        seen.push(&line.series);
        let _ = write!(
            keys,
            "<span class=\"key\"><svg class=\"swatch hue{}\" aria-hidden=\"true\" width=\"40\" height=\"14\">\
             <line class=\"curve\" x1=\"0\" y1=\"7\" x2=\"40\" y2=\"7\"/>\
             <path class=\"spot\" transform=\"translate(20 7)\" d=\"{}\"/></svg> {}</span> ",
            line.hue % HUES,
            shape(line),
            escape(&line.series)
        );
    }
    format!("<p class=\"caption legend\">{keys}</p>")
}
