//! CSV for spreadsheets and scripts: one line per case, or per comparison; plain numbers, empty
//! where there is none. A table is a list of columns, each with its name and its value.

use anyhow::Result;

use crate::{
    experiment::Role,
    record::{
        BudgetVerdict, CaseRecord, Comparison, Curve, CurveGroup, CurvePoint, Curves, Net, Part,
        Raw, Record, Status, Verdict,
    },
    report::{
        rate::{self, Load, Share},
        text,
    },
    workload::VARIANT,
};

/// A column of [`render`]: its name, and its value for a case.
type Column = (&'static str, fn(&Line<'_>) -> String);

/// The columns of every case.
const CASES: [Column; 32] = [
    ("experiment", |line| text::line(&line.record.experiment)),
    ("target", |line| text::line(&line.record.target)),
    ("kernel", |line| text::line(&line.record.machine.kernel)),
    ("started", |line| text::line(&line.record.started)),
    ("unit", |line| line.record.unit.to_string()),
    ("case", |line| text::line(&line.case.name)),
    ("group", |line| text::line(&line.case.group)),
    ("role", |line| match line.case.role {
        Role::Case => "case".to_owned(),
        Role::Floor => "floor".to_owned(),
    }),
    ("status", |line| match line.case.status {
        Status::Ok => "ok".to_owned(),
        Status::Invalid => "invalid".to_owned(),
        Status::Unsupported => "unsupported".to_owned(),
    }),
    ("epochs", |line| shown(line.raw.map(|raw| raw.epochs))),
    ("trials", |line| shown(line.raw.map(|raw| raw.trials))),
    ("value", |line| plain(line.raw.map(|raw| raw.value))),
    ("ci95_low", |line| low(line.raw.and_then(|raw| raw.ci95))),
    ("ci95_high", |line| high(line.raw.and_then(|raw| raw.ci95))),
    ("loads_low", |line| low(line.raw.and_then(|raw| raw.loads))),
    ("loads_high", |line| {
        high(line.raw.and_then(|raw| raw.loads))
    }),
    ("repeats", |line| {
        shown(line.raw.and_then(|raw| raw.repeats))
    }),
    ("net_low", |line| low(line.net.map(|net| net.bracket))),
    ("net_high", |line| high(line.net.map(|net| net.bracket))),
    ("net_value", |line| {
        plain(line.net.and_then(|net| net.value))
    }),
    ("net_ci95_low", |line| {
        low(line.net.and_then(|net| net.ci95))
    }),
    ("net_ci95_high", |line| {
        high(line.net.and_then(|net| net.ci95))
    }),
    ("distinguishable", |line| {
        shown(line.net.map(|net| net.distinguishable))
    }),
    ("min", |line| plain(line.raw.map(|raw| raw.min))),
    ("p50", |line| plain(line.raw.map(|raw| raw.p50))),
    ("p90", |line| plain(line.raw.map(|raw| raw.p90))),
    ("p99", |line| plain(line.raw.map(|raw| raw.p99))),
    ("max", |line| plain(line.raw.map(|raw| raw.max))),
    ("stddev", |line| plain(line.raw.map(|raw| raw.stddev))),
    ("cv", |line| plain(line.raw.map(|raw| raw.cv))),
    ("outliers", |line| shown(line.raw.map(|raw| raw.outliers))),
    ("problem", |line| text::line(&problem(line.case))),
];

/// Further columns where a rate or a budget was asked.
const RATES: [Column; 6] = [
    ("rate_per_s", |line| plain(line.load.rate)),
    ("core_share", |line| {
        plain(line.share().map(|share| share.value))
    }),
    ("core_share_ci95_low", |line| {
        low(line.share().and_then(|share| share.ci95))
    }),
    ("core_share_ci95_high", |line| {
        high(line.share().and_then(|share| share.ci95))
    }),
    ("budget_share", |line| plain(line.load.budget)),
    ("budget_per_s", |line| {
        let most = |budget| rate::most(line.case, line.record, budget);
        plain(line.load.budget.and_then(most))
    }),
];

/// Further columns where cases make curves.
const CURVES: [Column; 11] = [
    ("curve", |line| {
        line.on_curve(|_, curve, _| text::line(curve.series))
    }),
    ("circumstances", |line| {
        line.on_curve(|group, _, _| text::line(&group.apart))
    }),
    ("at", |line| {
        line.on_curve(|_, _, point| point.threads.to_string())
    }),
    ("rate", |line| {
        line.on_curve(|_, _, point| value(point.rate))
    }),
    ("rate_ci95_low", |line| {
        line.on_curve(|_, _, point| low(ends(point.rate)))
    }),
    ("rate_ci95_high", |line| {
        line.on_curve(|_, _, point| high(ends(point.rate)))
    }),
    ("speed_up", |line| {
        line.on_curve(|_, _, point| value(point.speed_up))
    }),
    ("speed_up_ci95_low", |line| {
        line.on_curve(|_, _, point| low(ends(point.speed_up)))
    }),
    ("speed_up_ci95_high", |line| {
        line.on_curve(|_, _, point| high(ends(point.speed_up)))
    }),
    ("efficiency", |line| {
        line.on_curve(|_, _, point| plain(point.efficiency))
    }),
    ("knee", |line| {
        line.on_curve(|_, curve, point| shown(curve.knee.map(|knee| knee == point.threads)))
    }),
];

/// Further columns of a record: their names, and what they hold for a case.
pub type Columns<'a> = Box<dyn Fn(&CaseRecord) -> Vec<(String, String)> + 'a>;

/// A column of [`comparisons`].
type PairColumn = (&'static str, fn(&Record, &Comparison) -> String);

/// The columns of every comparison.
const COMPARISONS: [PairColumn; 17] = [
    ("experiment", |record, _| text::line(&record.experiment)),
    ("target", |record, _| text::line(&record.target)),
    ("started", |record, _| text::line(&record.started)),
    ("unit", |record, _| record.unit.to_string()),
    ("case", |_, pair| text::line(&pair.case)),
    ("baseline", |_, pair| text::line(&pair.baseline)),
    ("difference", |_, pair| plain(Some(pair.difference))),
    ("ci95_low", |_, pair| low(pair.ci95)),
    ("ci95_high", |_, pair| high(pair.ci95)),
    ("relative", |_, pair| plain(Some(pair.relative))),
    ("relative_ci95_low", |_, pair| low(pair.relative_ci95)),
    ("relative_ci95_high", |_, pair| high(pair.relative_ci95)),
    ("p", |_, pair| plain(Some(pair.p))),
    ("verdict", |_, pair| match pair.verdict {
        Verdict::Slower => "slower".to_owned(),
        Verdict::Faster => "faster".to_owned(),
        Verdict::Same => "same".to_owned(),
        Verdict::Unresolved => "unresolved".to_owned(),
    }),
    ("detectable_percent", |_, pair| plain(pair.detectable)),
    ("resolve_s", |_, pair| plain(pair.resolve_s)),
    ("budget", |_, pair| match pair.budget {
        Some(BudgetVerdict::Within) => "within".to_owned(),
        Some(BudgetVerdict::Over) => "over".to_owned(),
        Some(BudgetVerdict::CantTell) => "can't tell".to_owned(),
        None => String::new(),
    }),
];

/// What a line of [`render`] is made from.
struct Line<'a> {
    record: &'a Record,
    case: &'a CaseRecord,
    /// What was measured, of a case that is valid.
    raw: Option<&'a Raw>,
    net: Option<&'a Net>,
    /// What was asked, where costs answer it.
    load: Load,
    /// Where the case stands on a curve.
    point: Option<(&'a CurveGroup<'a>, &'a Curve<'a>, &'a CurvePoint<'a>)>,
}

impl<'a> Line<'a> {
    fn new(
        case: &'a CaseRecord,
        record: &'a Record,
        curves: Option<&'a Curves<'a>>,
        load: Load,
    ) -> Self {
        let raw = case.raw.as_ref().filter(|_| case.status == Status::Ok);
        let on_it = |curves: &'a Curves<'a>| {
            let mut points = curves.points();
            points.find(|(_, _, point)| std::ptr::eq(point.case, case))
        };
        Line {
            record,
            case,
            raw,
            net: raw.and(case.net.as_ref()),
            load: match record.layout.grid() {
                Some(_) => load,
                None => Load::default(),
            },
            point: curves.and_then(on_it),
        }
    }

    /// What the case costs of a core at the rate that was asked.
    fn share(&self) -> Option<Share> {
        rate::share(self.case, self.record, self.load.rate?)
    }

    /// A value of a point; empty where the case is on no curve.
    fn on_curve(
        &self,
        value: impl Fn(&CurveGroup<'_>, &Curve<'_>, &CurvePoint<'_>) -> String,
    ) -> String {
        let point = self.point.as_ref();
        point.map_or_else(String::new, |(group, curve, point)| {
            value(group, curve, point)
        })
    }
}

/// Every case of every record, with what they cost at a rate, or how many events a share of a core pays for, where
/// `load` asks for it; and with the columns that their experiments have of their own.
pub fn render<'a>(
    records: &'a [Record],
    load: Load,
    own: impl Fn(&'a Record) -> Vec<Columns<'a>>,
) -> Result<String> {
    let mut columns = CASES.to_vec();
    if load != Load::default() {
        columns.extend(RATES);
    }
    if records
        .iter()
        .any(|record| record.layout.scaling().is_some())
    {
        columns.extend(CURVES);
    }
    let mut head: Vec<String> = columns.iter().map(|column| column.0.to_owned()).collect();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for record in records {
        let (curves, own) = (Curves::of(record), own(record));
        for case in &record.cases {
            let line = Line::new(case, record, curves.as_ref(), load);
            let mut cells: Vec<String> = columns.iter().map(|column| column.1(&line)).collect();
            let further = own.iter().flat_map(|own| own(case));
            for (name, cell) in secondary(case, record).into_iter().chain(further) {
                let mut further = head.iter().skip(columns.len());
                let known = further.position(|own| *own == name);
                let place = columns.len() + known.unwrap_or(head.len() - columns.len());
                if place == head.len() {
                    head.push(name);
                }
                cells.resize(cells.len().max(place + 1), String::new());
                cells[place] = cell;
            }
            lines.push(cells);
        }
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&head)?;
    for mut cells in lines {
        cells.resize(head.len(), String::new());
        writer.write_record(cells)?;
    }
    finish(writer)
}

/// The further values of a case's trials, where its layout shows them.
fn secondary(case: &CaseRecord, record: &Record) -> Vec<(String, String)> {
    let names = case.secondary.keys();
    let names = names.map(|name| (text::line(name), case.secondary_part(name)));
    if record.layout.scaling().is_some() {
        return names.map(|(name, part)| (name, value(part))).collect();
    }
    if record.layout.workload().is_none() {
        return Vec::new();
    }
    let variant = case.factors.get(VARIANT);
    let variant = variant.map_or_else(String::new, |name| text::line(name));
    let values = names.flat_map(|(name, part)| with_ends(&name, &name, part));
    std::iter::once((VARIANT.to_owned(), variant))
        .chain(values)
        .collect()
}

/// Columns of a value and of its interval, which start with a name each.
pub fn with_ends(name: &str, ends_name: &str, part: Option<Part>) -> [(String, String); 3] {
    let interval = ends(part);
    [
        (name.to_owned(), value(part)),
        (format!("{ends_name}_ci95_low"), low(interval)),
        (format!("{ends_name}_ci95_high"), high(interval)),
    ]
}

/// Every comparison of every record.
pub fn comparisons(records: &[Record]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COMPARISONS.map(|column| column.0))?;
    for record in records {
        for pair in &record.comparisons {
            writer.write_record(COMPARISONS.map(|column| column.1(record, pair)))?;
        }
    }
    finish(writer)
}

/// Why a case has no number.
fn problem(case: &CaseRecord) -> String {
    match case.status {
        Status::Ok => String::new(),
        Status::Invalid => {
            let problems: Vec<String> = case.problems.iter().map(ToString::to_string).collect();
            problems.join("; ")
        }
        Status::Unsupported => case.reason.clone().unwrap_or_default(),
    }
}

/// The shortest text that reads back as the same number; empty without one.
pub fn plain(value: Option<f64>) -> String {
    shown(value.filter(|value| value.is_finite()))
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn value(part: Option<Part>) -> String {
    plain(part.map(|part| part.value))
}

fn ends(part: Option<Part>) -> Option<[f64; 2]> {
    part.and_then(|part| part.ci95)
}

fn low(interval: Option<[f64; 2]>) -> String {
    plain(interval.map(|ends| ends[0]))
}

fn high(interval: Option<[f64; 2]>) -> String {
    plain(interval.map(|ends| ends[1]))
}

fn finish(writer: csv::Writer<Vec<u8>>) -> Result<String> {
    Ok(String::from_utf8(writer.into_inner()?)?)
}
