//! The layout of an experiment's results. The experiment declares it, plan and record keep it, and views follow it, so
//! that nothing after the experiment has to know which one it was.

use serde::{Deserialize, Serialize};

/// The factor whose values are the probes.
pub const VARIANT: &str = "variant";

/// The baseline's name.
pub const OFF: &str = "off";

/// The factor that picks a client, where there are several.
pub const LOAD: &str = "load";

/// The default operation: seconds stand for operations, and CPU time is a share of a CPU.
pub const SECOND: &str = "second";

/// The layout of cases in tables and figures.
///
/// In JSON: a key `layout` with its name, and its contents under another key (`grid`, `scaling`, `workload`).
/// Records from before `layout` have only the second.
///
/// The default is a list of cases under their headings; the others come from what declares them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct Layout(Kind);

#[derive(Clone, Debug, Default, PartialEq)]
enum Kind {
    #[default]
    Flat,
    /// A table that two factors span.
    Grid(Grid),
    /// Curves over a number of threads or CPUs.
    Curves(Scaling),
    /// Probes beside a workload, each against none.
    Workload(ProbedWorkload),
    /// One that a newer version declares: shown flat, with a note.
    Unknown(String),
}

/// Two factors that span a table. Each cell is the cost of one operation without its floor, for the floor of a row is
/// an event's own cost and would dilute every difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// The factor whose values are the rows.
    pub rows: String,
    /// The factor whose values are the columns.
    pub columns: String,
    /// The meaning of a cell's net cost, to complete "Every number is net: …". Records from before this field are of
    /// events.
    #[serde(default = "Grid::event_net")]
    pub net: String,
    /// The meaning of different floors in different rows, in a sentence.
    #[serde(default = "Grid::event_floors")]
    pub floors: String,
    /// The note beside the costs of a row, where cases know it.
    #[serde(default = "Grid::event_note")]
    pub note: Option<CellNote>,
}

/// A note on a cell: the rest of the name of each secondary value that begins with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellNote {
    /// The prefix: `site_`. Without its `_` it is the heading.
    pub prefix: String,
    /// The meaning of the notes.
    pub about: String,
}

impl Grid {
    /// A table of events that programs are attached to.
    pub fn of_events(rows: &str, columns: &str) -> Self {
        Grid {
            rows: rows.to_owned(),
            columns: columns.to_owned(),
            net: Grid::event_net(),
            floors: Grid::event_floors(),
            note: Grid::event_note(),
        }
    }

    fn event_note() -> Option<CellNote> {
        Some(CellNote {
            prefix: "site_".to_owned(),
            about: "the instruction that was put at a uprobe's site".to_owned(),
        })
    }

    fn event_net() -> String {
        "an event with the program attached, minus the same event without it (its floor)".to_owned()
    }

    fn event_floors() -> String {
        "Rows with different floors are of different events: their nets can be compared, but a program \
         can't always choose its event."
            .to_owned()
    }
}

/// The factors that make curves of cases, and the value that curves show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scaling {
    /// The factor that grows along a curve, a count: `threads`.
    pub over: String,
    /// The factor that names a curve: `pool`. Cases of one curve have all other factors in common.
    pub series: String,
    /// The secondary value that should grow: operations per second of all together.
    pub rate: String,
}

/// Probes beside a workload: what ran, and how to read it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbedWorkload {
    /// One operation, in a word: `command`, `request`.
    pub operation: String,
    /// Whose CPU time per operation the cases' own values are: `server` or `machine`.
    pub headline: Headline,
    /// The question.
    pub about: String,
    /// The service that pays for the probes, where that is not the experiment's name.
    pub subject: Option<String>,
    /// An explanation of the result, in paragraphs.
    pub prose: String,
    /// The meaning of each value of the factor `variant`, in the order of tables; the first is the baseline.
    pub variants: Vec<(String, String)>,
    /// The factor along which curves are drawn, where there is one.
    pub over: Option<String>,
}

/// Whose CPU time per operation leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Headline {
    /// The processes of the server, and the interrupts that ran in their time.
    #[default]
    Server,
    /// Everything on the machine but idling.
    Machine,
}

impl From<Grid> for Layout {
    fn from(grid: Grid) -> Self {
        Layout(Kind::Grid(grid))
    }
}

impl From<Scaling> for Layout {
    fn from(scaling: Scaling) -> Self {
        Layout(Kind::Curves(scaling))
    }
}

impl From<ProbedWorkload> for Layout {
    fn from(workload: ProbedWorkload) -> Self {
        Layout(Kind::Workload(workload))
    }
}

impl Layout {
    /// The factors that span a table, where two do.
    pub fn grid(&self) -> Option<&Grid> {
        match &self.0 {
            Kind::Grid(grid) => Some(grid),
            _ => None,
        }
    }

    /// The factors of curves, where cases make some.
    pub fn scaling(&self) -> Option<&Scaling> {
        match &self.0 {
            Kind::Curves(scaling) => Some(scaling),
            _ => None,
        }
    }

    /// The workload that probes ran beside, where they did.
    pub fn workload(&self) -> Option<&ProbedWorkload> {
        match &self.0 {
            Kind::Workload(workload) => Some(workload),
            _ => None,
        }
    }

    /// The name of a layout that a newer version declares.
    pub fn newer(&self) -> Option<&str> {
        match &self.0 {
            Kind::Unknown(name) => Some(name),
            _ => None,
        }
    }

    /// True if a trial is a window of a running workload, of which totals add up, and which differ more from day to day
    /// than a program's cost.
    pub fn times_windows(&self) -> bool {
        matches!(self.0, Kind::Workload(_))
    }

    /// True if cases are compared by their nets: their floors are events of their own.
    pub fn compares_nets(&self) -> bool {
        matches!(self.0, Kind::Grid(_))
    }

    /// True if rates of cases are compared along curves.
    pub fn compares_rates(&self) -> bool {
        matches!(self.0, Kind::Curves(_))
    }

    /// One operation of a workload in a word: `command`, `request`. `None` where a case's operation is its own.
    pub fn operation(&self) -> Option<&str> {
        Some(&self.workload()?.operation)
    }

    /// The same layout of a workload with the CPU time of the machine in the lead; `None` where that of a server does not
    /// lead.
    pub fn led_by_machine(&self) -> Option<Layout> {
        let mut workload = self.workload()?.clone();
        (workload.headline != Headline::Machine).then(|| {
            workload.headline = Headline::Machine;
            workload.into()
        })
    }

    /// The layout's name in JSON.
    pub fn name(&self) -> &str {
        match &self.0 {
            Kind::Flat => "flat",
            Kind::Grid(_) => "grid",
            Kind::Curves(_) => "curves",
            Kind::Workload(_) => "workload",
            Kind::Unknown(name) => name,
        }
    }
}

/// A [`Layout`] as JSON.
#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grid: Option<Grid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scaling: Option<Scaling>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workload: Option<ProbedWorkload>,
}

impl From<Wire> for Layout {
    fn from(wire: Wire) -> Self {
        let layout = || {
            let grid = wire.grid.map(Layout::from);
            let curves = || wire.scaling.map(Layout::from);
            let workload = || wire.workload.map(Layout::from);
            grid.or_else(curves).or_else(workload).unwrap_or_default()
        };
        match wire.layout.as_deref() {
            None | Some("flat" | "grid" | "curves" | "workload") => layout(),
            Some(newer) => Layout(Kind::Unknown(newer.to_owned())),
        }
    }
}

impl From<Layout> for Wire {
    fn from(layout: Layout) -> Self {
        Wire {
            layout: Some(layout.name().to_owned()),
            grid: layout.grid().cloned(),
            scaling: layout.scaling().cloned(),
            workload: layout.workload().cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record or a plan: something that has a layout among its keys.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct LayoutHolder {
        seed: u64,
        #[serde(default, flatten)]
        layout: Layout,
        cases: Vec<u64>,
    }

    fn shown(layout: Layout) -> LayoutHolder {
        LayoutHolder {
            seed: (1 << 53) - 1,
            layout,
            cases: vec![1, 2],
        }
    }

    fn grid() -> Grid {
        Grid::of_events("attach", "body")
    }

    #[test]
    fn a_layout_is_a_name_beside_what_belongs_to_it() {
        let json = serde_json::to_string(&shown(Layout::from(grid()))).unwrap();
        let start = r#"{"seed":9007199254740991,"layout":"grid","grid":{"rows":"attach","columns":"body","net":"#;
        assert!(json.starts_with(start), "{json}");
        for layout in [
            Layout::default(),
            Layout::from(grid()),
            Layout(Kind::Unknown("tree".into())),
        ] {
            let json = serde_json::to_string(&shown(layout.clone())).unwrap();
            assert_eq!(
                serde_json::from_str::<LayoutHolder>(&json).unwrap(),
                shown(layout)
            );
        }
    }

    #[test]
    fn records_from_before_it_had_a_name_have_theirs() {
        let read = |json: &str| serde_json::from_str::<LayoutHolder>(json).unwrap().layout;
        let old = r#"{"seed":1,"grid":{"rows":"attach","columns":"body"},"cases":[]}"#;
        assert_eq!(read(old), Layout::from(grid()));
        let curves = r#"{"seed":1,"scaling":{"over":"threads","series":"pool","rate":"pairs_per_s"},"cases":[]}"#;
        assert_eq!(read(curves).scaling().unwrap().series, "pool");
        assert_eq!(read(r#"{"seed":1,"cases":[]}"#), Layout::default());
        assert_eq!(
            read(r#"{"seed":1,"grid":null,"cases":[]}"#),
            Layout::default()
        );
    }

    #[test]
    fn what_a_newer_version_declares_is_unknown_and_no_error() {
        let newer = r#"{"seed":1,"layout":"tree","tree":{"root":"a"},"cases":[]}"#;
        let read: LayoutHolder = serde_json::from_str(newer).unwrap();
        assert_eq!(read.layout.newer(), Some("tree"));
    }

    #[test]
    fn what_is_malformed_is_an_error() {
        let bad = r#"{"seed":1,"grid":{"rows":3},"cases":[]}"#;
        let error = serde_json::from_str::<LayoutHolder>(bad)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("rows") || error.contains("string"),
            "{error}"
        );
    }
}
