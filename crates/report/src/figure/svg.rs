//! The few SVG elements that figures need, with text made safe.

use std::fmt::Write;

/// `text` in which nothing is markup.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A number as short as it stays exact to the eye.
pub(crate) fn short(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{value:.2}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" | "" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// An inline SVG as wide as its place, `height` pixels high.
pub(crate) struct Svg {
    out: String,
    /// Inner elements to be closed.
    open: usize,
}

impl Svg {
    /// An empty one that says what it shows.
    pub(crate) fn new(class: &str, height: f64, title: &str, desc: &str) -> Self {
        let mut out = format!(
            "<svg class=\"{class}\" role=\"img\" width=\"100%\" height=\"{}\"><title>{}</title>",
            short(height),
            escape(title)
        );
        if !desc.is_empty() {
            let _ = write!(out, "<desc>{}</desc>", escape(desc));
        }
        Svg { out, open: 0 }
    }

    /// An empty one that fills its place in height too; see [`Svg::middle`].
    pub(crate) fn filling(class: &str, title: &str, desc: &str) -> Self {
        let svg = Svg::new(class, 0.0, title, desc);
        Svg {
            out: svg.out.replacen("height=\"0\"", "height=\"100%\"", 1),
            open: 0,
        }
    }

    /// Moves the origin of y to the middle of the height, up to [`Svg::finish`].
    pub(crate) fn middle(&mut self) {
        self.out
            .push_str("<svg y=\"50%\" width=\"100%\" height=\"1\">");
        self.open += 1;
    }

    /// An empty one that says nothing that is not said beside it.
    pub(crate) fn quiet(class: &str, height: f64) -> Self {
        let height = short(height);
        Svg {
            out: format!(
                "<svg class=\"{class}\" aria-hidden=\"true\" width=\"100%\" height=\"{height}\">"
            ),
            open: 0,
        }
    }

    /// A line between two places; x in percent, y in pixels.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(short);
        let _ = write!(
            self.out,
            "<line class=\"{class}\" x1=\"{x1}%\" y1=\"{y1}\" x2=\"{x2}%\" y2=\"{y2}\"/>"
        );
    }

    pub(crate) fn upright(&mut self, class: &str, x: f64) {
        let x = short(x);
        let _ = write!(
            self.out,
            "<line class=\"{class}\" x1=\"{x}%\" y1=\"0\" x2=\"{x}%\" y2=\"100%\"/>"
        );
    }

    /// A box from top to bottom, and a hair beyond so that rows join; its ends in percent.
    pub(crate) fn column(&mut self, class: &str, ends: (f64, f64)) {
        let [x, width] = [ends.0, ends.1 - ends.0].map(short);
        let _ = write!(
            self.out,
            "<rect class=\"{class}\" x=\"{x}%\" y=\"-2%\" width=\"{width}%\" height=\"104%\"/>"
        );
    }

    /// A box from the left to the right end, in percent; y and height in pixels.
    pub(crate) fn band(&mut self, class: &str, ends: (f64, f64), y: f64, height: f64) {
        let width = (ends.1 - ends.0).max(0.2);
        let [x, width, y, height] = [ends.0, width, y, height].map(short);
        let _ = write!(
            self.out,
            "<rect class=\"{class}\" x=\"{x}%\" y=\"{y}\" width=\"{width}%\" height=\"{height}\" rx=\"2\"/>"
        );
    }

    pub(crate) fn dot(&mut self, class: &str, at: (f64, f64), radius: f64) {
        let [x, y, radius] = [at.0, at.1, radius].map(short);
        let _ = write!(
            self.out,
            "<circle class=\"{class}\" cx=\"{x}%\" cy=\"{y}\" r=\"{radius}\"/>"
        );
    }

    /// A line across the whole width; y in pixels.
    pub(crate) fn level(&mut self, class: &str, y: f64) {
        self.line(class, (0.0, y), (100.0, y));
    }

    /// A shape around a place, in pixels from it, with what it says.
    pub(crate) fn mark(&mut self, class: &str, at: (f64, f64), shape: &str, title: &str) {
        let [x, y] = [at.0, at.1].map(short);
        let title = match title {
            "" => String::new(),
            words => format!("<title>{}</title>", escape(words)),
        };
        let _ = write!(
            self.out,
            "<svg x=\"{x}%\" y=\"{y}\" class=\"{class}\">{title}<path d=\"{shape}\"/></svg>"
        );
    }

    /// Words at a place; `anchor` is `start`, `middle` or `end`.
    pub(crate) fn text(&mut self, anchor: &str, at: (f64, f64), words: &str) {
        let [x, y] = [at.0, at.1].map(short);
        let words = escape(words);
        let _ = write!(
            self.out,
            "<text x=\"{x}%\" y=\"{y}\" text-anchor=\"{anchor}\">{words}</text>"
        );
    }

    /// Markup made by a figure itself.
    pub(crate) fn raw(&mut self, markup: &str) {
        self.out.push_str(markup);
    }

    pub(crate) fn finish(mut self) -> String {
        self.out.push_str(&"</svg>".repeat(self.open + 1));
        self.out
    }
}
