//! The curves as sections: figures where there is room for them, then small tables, then all points.

use super::{Chart, plot, tables};
use crate::{
    figure::curve,
    section::{Detail, Figures, Order, Section, table_sections},
};
use bpfcost_text::{line, number};

impl Chart<'_> {
    /// The first sections of a view.
    pub(crate) fn sections(&self, detail: Detail) -> Vec<Section> {
        let mut tables = self.tables(detail == Detail::Full);
        let mut sections = Vec::new();
        if detail == Detail::Page {
            sections.extend(self.figures());
            tables.push(tables::points(self));
        }
        sections.extend(table_sections(tables));
        sections
    }

    /// The usual circumstances, then the others.
    fn figures(&self) -> Vec<Section> {
        let groups = self.curves.groups.iter();
        let mut figures = groups.map(|group| curve::figure(&plot::group_plot(self, group)));
        let none = String::new;
        let usual = Vec::from_iter(figures.next());
        let usual = Figures::titled("Scaling", none(), self.caption(), usual);
        let others = Figures::titled("Other conditions", none(), none(), figures.collect());
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
            line(&self.curves.scaling.over)
        )
    }
}
