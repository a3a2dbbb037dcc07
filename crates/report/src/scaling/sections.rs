//! The curves as sections: figures where there is room for them, then small tables, then all points.

use super::{Chart, plot, rate};
use crate::{
    figure::curve,
    section::{Detail, Figures, Order, Section, table_sections},
};
use bpfcost_text::{self, number};

impl Chart<'_> {
    /// What leads a view.
    pub(crate) fn sections(&self, detail: Detail) -> Vec<Section> {
        let mut tables = self.tables(detail == Detail::Full);
        let mut sections = Vec::new();
        if detail == Detail::Page {
            sections.extend(self.figures());
            tables.push(rate::points(self));
        }
        sections.extend(table_sections(tables));
        sections
    }

    /// The usual circumstances, then the others.
    fn figures(&self) -> Vec<Section> {
        let groups = self.curves.groups.iter();
        let mut figures = groups.map(|group| curve::figure(&plot::measured(self, group)));
        let none = String::new;
        let usual = Vec::from_iter(figures.next());
        let usual = Figures::of("Scaling", none(), self.caption(), usual);
        let others = Figures::of("Other conditions", none(), none(), figures.collect());
        let order = Order::Small;
        let others = others.map(|others| Figures { order, ..others });
        usual
            .into_iter()
            .chain(others)
            .map(Section::Figures)
            .collect()
    }

    fn caption(&self) -> String {
        let ring = if self.tells_speed {
            " A ring marks the knee: the fewest that reach 95 % of the curve's best."
        } else {
            ""
        };
        format!(
            "Both axes are logarithmic. Bars are 95 % intervals.{ring} The vertical line is at {}; to its right, \
             {} share CPUs.",
            number::plural(self.curves.cpus as usize, "CPU"),
            bpfcost_text::line(&self.curves.scaling.over)
        )
    }
}
