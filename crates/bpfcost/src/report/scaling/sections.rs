//! The curves as sections: figures where there is room for them, then small tables, then all points.

use super::{Chart, plot, with_ends};
use crate::{
    record::{Curve, CurvePoint, Part},
    report::{
        block::{Block, Cell, Head},
        figure::curve,
        missed, number,
        section::{Detail, Figures, Order, Section, tables},
        text,
        view::grid::EVERY_CASE,
    },
};

impl Chart<'_> {
    /// What leads a view.
    pub(in crate::report) fn sections(&self, detail: Detail) -> Vec<Section> {
        let mut blocks = self.blocks(detail == Detail::Full);
        if let Some(last) = blocks.last_mut().filter(|_| detail == Detail::Brief) {
            last.captions.push(EVERY_CASE.to_owned());
        }
        let mut sections = Vec::new();
        if detail == Detail::Page {
            sections.extend(self.figures());
            blocks.push(self.points());
        }
        sections.extend(tables(blocks));
        sections
    }

    /// The usual circumstances, then the others.
    fn figures(&self) -> Vec<Section> {
        let groups = self.curves.groups.iter();
        let mut figures = groups.map(|group| curve::figure(&plot::measured(self, group)));
        let usual = Figures {
            title: "Who scales".to_owned(),
            caption: self.caption(),
            figures: figures.next().into_iter().collect(),
            ..Figures::default()
        };
        let others = Figures {
            title: "Under other circumstances".to_owned(),
            figures: figures.collect(),
            order: Order::Small,
            ..Figures::default()
        };
        let mut all = vec![usual, others];
        all.retain(|one| !one.figures.is_empty());
        all.into_iter().map(Section::Figures).collect()
    }

    fn caption(&self) -> String {
        let cpus = number::plural(self.curves.cpus as usize, "CPU");
        let over = text::line(&self.curves.scaling.over);
        let (gains, rings) = match self.tells_speed {
            true => (
                format!(" A curve that rises gains by more {over}, one that falls loses by them."),
                " A ring is the knee: the fewest that reach 95 % of the curve's best.",
            ),
            false => (String::new(), ""),
        };
        format!(
            "Both axes are logarithmic.{gains} Bars are 95 % intervals.{rings} The upright line stands at {cpus}: to \
             the right of it, {over} share them."
        )
    }

    /// Every point of every curve, in numbers.
    fn points(&self) -> Block {
        let plain = |value: f64| number::fixed(value, number::plain_decimals(value).min(2));
        let row = |(_, curve, point): (_, &Curve<'_>, &CurvePoint<'_>)| {
            let part = |part: Option<Part>, show: &dyn Fn(Part) -> String| {
                part.map_or_else(Cell::default, |part| Cell::number(show(part), part.value))
            };
            let mut cells = vec![
                Cell::words(text::line(&point.case.name)),
                Cell::of(Some(f64::from(point.threads)), plain),
                part(point.rate, &|rate| self.rate(rate)),
                Cell::of(point.case.misses(), missed::share),
            ];
            cells.extend(point.latencies().map(|latency| Cell::of(latency, plain)));
            if self.tells_speed {
                let knee = curve.knee == Some(point.threads);
                cells.extend([
                    part(point.speed_up, &|part| with_ends(part.value, part.ci95)),
                    Cell::of(point.efficiency, number::percent),
                    Cell::words(if knee { "knee" } else { "" }),
                    Cell::of(point.fairness(), plain),
                ]);
            }
            cells
        };
        let over = text::line(&self.curves.scaling.over);
        let rates = self.rate_unit.of(&self.operations());
        let mut head = vec![Head::words("case")];
        head.extend([&over, &rates].map(Head::number));
        head.extend(["misses", "p50 ns", "p99 ns", "p99.9 ns"].map(Head::number));
        if self.tells_speed {
            head.extend(["speed-up", "efficiency"].map(Head::number));
            head.extend([Head::words("knee"), Head::number("fairness")]);
        }
        Block {
            title: "All points".to_owned(),
            head,
            rows: self.curves.points().map(row).collect(),
            captions: vec!["Every point of every curve.".to_owned()],
            ..Block::default()
        }
    }
}
