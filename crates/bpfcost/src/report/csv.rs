//! CSV for spreadsheets and scripts: one line per case, or per comparison; plain numbers, empty
//! where there is none. A table is a list of columns, each with its name and its value.

use std::collections::BTreeSet;

use anyhow::Result;
use bpfcost_stats::Additive;

use crate::{
    experiment::Role,
    record::{
        BudgetVerdict, CaseRecord, Comparison, Curve, CurveGroup, CurvePoint, Curves, Net, Part,
        PartRole, Parts, PartsSum, Raw, Record, Status, Verdict,
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
const CASES: [Column; 43] = [
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
    ("part", |line| line.part_name.to_owned()),
    ("part_value", |line| value(line.part)),
    ("part_ci95_low", |line| low(ends(line.part))),
    ("part_ci95_high", |line| high(ends(line.part))),
    ("residual", |line| value(line.residual())),
    ("residual_ci95_low", |line| low(ends(line.residual()))),
    ("residual_ci95_high", |line| high(ends(line.residual()))),
    ("adds_up", |line| match line.sum.map(|sum| sum.adds_up) {
        Some(Additive::Yes) => "yes".to_owned(),
        Some(Additive::No) => "no".to_owned(),
        Some(Additive::CantTell) => "can't tell".to_owned(),
        None => String::new(),
    }),
    ("kernel_body", |line| value(line.kernel_body())),
    ("kernel_body_ci95_low", |line| low(ends(line.kernel_body()))),
    ("kernel_body_ci95_high", |line| {
        high(ends(line.kernel_body()))
    }),
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

/// Further columns where cases make curves, before one for each of their secondary values.
const CURVES: [Column; 12] = [
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
    ("predicted", |line| {
        line.on_curve(|group, curve, point| {
            let usual = line.record.prediction.as_ref();
            let usual = usual.filter(|_| group.apart.is_empty());
            plain(usual.and_then(|found| found.rate(curve.series, point.threads)))
        })
    }),
];

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
    /// What the case is of a cost's parts.
    part_name: &'static str,
    part: Option<Part>,
    sum: Option<&'a PartsSum>,
    /// What was asked, where costs answer it.
    load: Load,
    /// Where the case stands on a curve.
    point: Option<(&'a CurveGroup<'a>, &'a Curve<'a>, &'a CurvePoint<'a>)>,
}

impl<'a> Line<'a> {
    fn new(
        case: &'a CaseRecord,
        record: &'a Record,
        (parts, curves): (Option<&'a Parts>, Option<&'a Curves<'a>>),
        load: Load,
    ) -> Self {
        let raw = case.raw.as_ref().filter(|_| case.status == Status::Ok);
        let (part_name, part, sum) = match parts.and_then(|parts| parts.role(case)) {
            None => ("", None, None),
            Some(PartRole::Mechanism(part)) => ("mechanism", Some(part), None),
            Some(PartRole::Body(part)) => ("body", Some(part), None),
            Some(PartRole::Tax(part)) => ("tax", Some(part), None),
            Some(PartRole::Together(sum)) => ("together", Some(sum.total), Some(sum)),
        };
        let on_it = |curves: &'a Curves<'a>| {
            let mut points = curves.points();
            points.find(|(_, _, point)| std::ptr::eq(point.case, case))
        };
        Line {
            record,
            case,
            raw,
            net: raw.and(case.net.as_ref()),
            part_name,
            part,
            sum,
            load: match record.layout.grid() {
                Some(_) => load,
                None => Load::default(),
            },
            point: curves.and_then(on_it),
        }
    }

    fn residual(&self) -> Option<Part> {
        self.sum.map(|sum| sum.residual)
    }

    fn kernel_body(&self) -> Option<Part> {
        self.sum.and_then(|sum| sum.kernel)
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

/// Every case of every record.
pub fn render(records: &[Record]) -> Result<String> {
    render_at(records, Load::default())
}

/// The same, with what attach types cost at a rate, or how many events a share of a core pays for.
pub fn render_at(records: &[Record], load: Load) -> Result<String> {
    let curved = |record: &Record| record.layout.scaling().is_some();
    let worked = |record: &Record| record.layout.workload().is_some();
    let mut columns = CASES.to_vec();
    if load != Load::default() {
        columns.extend(RATES);
    }
    if records.iter().any(curved) {
        columns.extend(CURVES);
    }
    let of_curves = secondary_names(records, curved);
    let of_workloads = secondary_names(records, worked);
    let mut head: Vec<String> = columns.iter().map(|column| column.0.to_owned()).collect();
    head.extend(of_curves.iter().map(|name| text::line(name)));
    let any_workload = records.iter().any(worked);
    if any_workload {
        head.push(VARIANT.to_owned());
    }
    for name in of_workloads.iter().map(|name| text::line(name)) {
        head.extend(["", "_ci95_low", "_ci95_high"].map(|end| format!("{name}{end}")));
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(head)?;
    for record in records {
        let (parts, curves) = (Parts::of(record), Curves::of(record));
        for case in &record.cases {
            let line = Line::new(case, record, (parts.as_ref(), curves.as_ref()), load);
            let mut cells: Vec<String> = columns.iter().map(|column| column.1(&line)).collect();
            cells.extend(
                of_curves
                    .iter()
                    .map(|name| plain(case.secondary_value(name))),
            );
            if any_workload {
                let variant = case.factors.get(VARIANT).filter(|_| worked(record));
                cells.push(variant.map_or_else(String::new, |name| text::line(name)));
            }
            for name in &of_workloads {
                let part = case.secondary_part(name).filter(|_| worked(record));
                cells.extend([value(part), low(ends(part)), high(ends(part))]);
            }
            writer.write_record(cells)?;
        }
    }
    finish(writer)
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

/// The secondary values of records that show them.
fn secondary_names(records: &[Record], shows: impl Fn(&Record) -> bool) -> BTreeSet<&str> {
    let shown = records.iter().filter(|record| shows(record));
    shown.flat_map(Record::secondary_names).collect()
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

/// The shortest text that reads back as the same number.
fn plain(value: Option<f64>) -> String {
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
