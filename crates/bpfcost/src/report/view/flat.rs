//! Every case by itself: what it costs, how its trials lie, and what differs from what.

use bpfcost_stats::sample::{epoch_medians, median};

use crate::{
    record::{CaseRecord, Raw, Record, Status},
    report::{
        block::{Block, Cell, Head},
        figure, number,
        rows::{CaseRow, Group, PairRow},
        section::{Detail, Figure, Figures, Order, Section},
        style::Tone,
        target, text, trials, words,
    },
};

/// More cases than this get no plot of their trials, but those whose intervals are widest.
const MOST_STRIPS: usize = 240;
/// Behind the number of a CPU in the name of a secondary value.
const PER_CPU: &str = "_ns_per_op";
/// The secondary value with the sum over CPUs.
const TOTAL: &str = "ops_per_s";
/// The secondary value with the part of the time in which all CPUs ran.
const OVERLAP: &str = "overlap";

/// The numbers of a case that count.
fn raw<'a>(row: &CaseRow<'a>) -> Option<&'a Raw> {
    let raw = row.case.raw.as_ref();
    raw.filter(|_| row.case.status == Status::Ok)
}

/// The cases by heading: a heading before the first of each, and what `cells` makes of a case.
fn by_group(
    groups: &[Group<'_>],
    cells: impl Fn(&CaseRow<'_>) -> Option<Vec<Cell>>,
) -> (Vec<(usize, String)>, Vec<Vec<Cell>>) {
    let (mut headings, mut rows) = (Vec::new(), Vec::new());
    for group in groups {
        let before = rows.len();
        rows.extend(group.rows.iter().filter_map(|row| {
            let name = Cell::words(row.name.clone()).toned(row.tone);
            Some(std::iter::once(name).chain(cells(row)?).collect())
        }));
        if rows.len() > before {
            headings.push((before, group.name.clone()));
        }
    }
    (headings, rows)
}

/// What cases cost.
pub(super) fn costs(groups: &[Group<'_>], record: &Record, detail: Detail) -> Option<Block> {
    let (unit, page) = (record.unit, detail == Detail::Page);
    let (groups, rows) = by_group(groups, |row| {
        let raw = raw(row);
        let net = row.case.net.as_ref().filter(|_| raw.is_some());
        let net_text = match page && !unit.is_counted() {
            true => format!("{} {}", row.net, words::net_interval(net)),
            false => row.net.clone(),
        };
        let low = raw.and_then(|raw| Some(raw.ci95.or(raw.loads)?[0]));
        let width = raw.and_then(|raw| words::relative_spread(raw, unit));
        let mut cells = vec![
            keyed(row.cost.clone(), raw.map(|raw| raw.value)).toned(row.tone),
            keyed(row.interval.clone(), low),
        ];
        cells.extend(page.then(|| Cell::of(width, number::percent)));
        let net = net.map(|net| net.value.unwrap_or(net.bracket[0]));
        cells.push(keyed(net_text.trim(), net));
        let tone = row.notes.first().map_or(Tone::Plain, |note| note.tone);
        cells.push(match (row.tone, detail) {
            // What failed stands below.
            (Tone::Alarm, Detail::Brief | Detail::Full) => Cell::words("see below").toned(tone),
            _ => Cell::words(row.note()).toned(tone),
        });
        Some(cells)
    });
    let mut head = vec![
        Head::words("case"),
        Head::number(unit.to_string()),
        Head::words(words::spread_heading(unit)),
    ];
    head.extend(page.then(|| Head::number(if unit.is_counted() { "apart" } else { "±" })));
    head.extend([Head::words("net"), Head::words("note")]);
    let mut captions = match page {
        true => vec![words::cost_caption(record)],
        false => words::captions(record),
    };
    captions.extend(words::memory_caption(record).filter(|_| !page));
    if detail == Detail::Brief && rows.len() < record.cases.len() {
        // What leads says how to read costs.
        captions.clear();
    }
    (!rows.is_empty()).then(|| Block {
        title: title(detail, "All costs"),
        head,
        groups,
        rows,
        captions,
        ..Block::default()
    })
}

/// A text that sorts by a number, where it has one.
fn keyed(text: impl Into<String>, key: Option<f64>) -> Cell {
    Cell {
        key,
        ..Cell::words(text)
    }
}

/// A title where tables need one to be found.
fn title(detail: Detail, title: impl Into<String>) -> String {
    match detail {
        Detail::Page => title.into(),
        _ => String::new(),
    }
}

/// What each CPU did, where several ran a case at once.
pub(super) fn cpus(record: &Record, detail: Detail) -> Option<Block> {
    let cpus = &record.asked.cpus;
    let middle = |case: &CaseRecord, name: &str| median(&case.secondary.get(name)?.concat());
    let plain = |value: f64| number::fixed(value, number::plain_decimals(value));
    let row = |case: &CaseRecord| {
        let cost = |cpu: &u32| Cell::of(middle(case, &format!("cpu{cpu}{PER_CPU}")), plain);
        let total = Cell::of(middle(case, TOTAL), |ops| {
            format!("{} M/s", plain(ops / 1e6))
        });
        let overlap = Cell::of(middle(case, OVERLAP), number::round_percent);
        std::iter::once(Cell::words(text::line(&case.name)))
            .chain(cpus.iter().map(cost))
            .chain([total, overlap])
            .collect()
    };
    let cases = record.cases.iter();
    let rows: Vec<Vec<Cell>> = cases
        .filter(|case| case.status == Status::Ok && case.secondary.contains_key(TOTAL))
        .map(row)
        .collect();
    let corner = Head::words(format!("{} on each CPU", record.unit));
    let each = cpus.iter().map(|cpu| Head::number(format!("CPU {cpu}")));
    let together = ["together", "overlap"].map(Head::number);
    (cpus.len() > 1 && !rows.is_empty()).then(|| Block {
        title: title(detail, "Each CPU, and all together"),
        head: std::iter::once(corner).chain(each).chain(together).collect(),
        rows,
        captions: vec![
            "All CPUs start together and run the same case at once; medians over trials. together: the rates of \
             all CPUs added up; overlap: the part of the time in which all of them ran."
                .to_owned(),
        ],
        ..Block::default()
    })
}

/// How the batch means of every case lie.
pub(super) fn batches(groups: &[Group<'_>], record: &Record, detail: Detail) -> Option<Block> {
    let counted = record.unit.is_counted();
    // What ticks add to some trials has no spread worth telling on a terminal.
    let spread = !counted || detail == Detail::Page;
    let (groups, rows) = by_group(groups, |row| {
        let raw = raw(row)?;
        // Two digits of the standard deviation tell all that these can.
        let decimals = number::decimals(raw.stddev);
        let number = |value: f64| match counted {
            true => Cell::number(words::value(value, None, record.unit), value),
            false => Cell::number(number::fixed(value, decimals.min(2)), value),
        };
        let count = |count: usize| Cell::number(number::count(count as u64), count as f64);
        let mut cells = vec![count(raw.epochs), count(raw.trials), number(raw.p50)];
        let stddev = number::fixed(raw.stddev, decimals.min(3));
        let shares = [
            Cell::number(stddev, raw.stddev),
            Cell::number(number::percent(raw.cv), raw.cv),
        ];
        cells.extend(shares.into_iter().filter(|_| spread));
        cells.extend([raw.min, raw.p90, raw.p99, raw.max].map(number));
        cells.extend(spread.then(|| count(raw.outliers)));
        Some(cells)
    });
    let loads = if counted { "loads" } else { "epochs" };
    let mut head = vec![Head::words(trials::name(record))];
    head.extend([loads, "n", "median"].map(Head::number));
    head.extend(
        ["stddev", "CV"]
            .map(Head::number)
            .into_iter()
            .filter(|_| spread),
    );
    head.extend(["min", "p90", "p99", "max"].map(Head::number));
    head.extend(spread.then(|| Head::number("outliers")));
    let mut captions = vec![trials::percentile_caption(record).to_owned()];
    match counted {
        true => captions.extend(record.cases.iter().filter_map(by_load)),
        false => captions.push(trials::spread_caption(record)),
    }
    (!rows.is_empty()).then(|| Block {
        title: title(detail, format!("All {}", trials::name(record))),
        head,
        groups,
        rows,
        captions,
        ..Block::default()
    })
}

/// The values that a count had, where it goes by the load.
fn by_load(case: &CaseRecord) -> Option<String> {
    words::range(case).filter(|_| case.status == Status::Ok)?;
    let mut values: Vec<f64> = epoch_medians(&case.samples);
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let shown = |value: &f64| number::fixed(*value, number::counted_decimals(*value));
    let mut texts: Vec<String> = values.iter().map(shown).collect();
    texts.dedup();
    let name = text::line(&case.name);
    Some(format!("{name} by load: {}", texts.join(" · ")))
}

/// Comparisons; counts have no intervals.
pub(super) fn pairs(pairs: &[PairRow<'_>], record: &Record, detail: Detail) -> Option<Block> {
    let (page, roomy) = (
        detail == Detail::Page,
        matches!(detail, Detail::Document | Detail::Page),
    );
    let low = |ends: Option<[f64; 2]>| ends.map(|ends| ends[0]);
    let row = |pair: &PairRow<'_>| {
        let found = pair.comparison;
        let mut cells = vec![
            Cell::words(pair.case.clone()),
            Cell::words(pair.baseline.clone()),
            Cell::number(pair.difference.clone(), found.difference),
        ];
        let interval = || keyed(pair.difference_interval.clone(), low(found.ci95));
        cells.extend(roomy.then(interval));
        cells.extend([
            Cell::number(pair.relative.clone(), found.relative),
            keyed(pair.interval.clone(), low(found.relative_ci95)),
            Cell::words(pair.verdict.clone()).toned(pair.tone),
        ]);
        cells.extend(page.then(|| Cell::words(pair.about.clone())));
        cells
    };
    let mut head = vec![
        Head::words("case"),
        Head::words("against"),
        Head::number(record.unit.to_string()),
    ];
    let interval = || Head::words("95\u{A0}% interval").joined();
    head.extend(roomy.then(interval));
    head.extend([
        Head::number(words::relative_heading(record.unit)),
        interval(),
        Head::words("verdict"),
    ]);
    head.extend(page.then(|| Head::words("question")));
    (!pairs.is_empty()).then(|| Block {
        title: title(detail, "All comparisons"),
        head,
        rows: pairs.iter().map(row).collect(),
        captions: vec![words::pair_caption(record)],
        ..Block::default()
    })
}

/// What cases cost, as figures: one a heading, for they differ in size.
pub(super) fn intervals(groups: &[Group<'_>], record: &Record) -> Option<Section> {
    let figure = |group: &Group<'_>| Figure {
        title: group.name.clone(),
        markup: figure::interval::render(group, record),
    };
    let captions = [words::session_caption(record), target::identity(record)];
    (!groups.is_empty()).then(|| {
        Section::Figures(Figures {
            title: "What each case costs".to_owned(),
            key: figure::interval::key(record),
            caption: "Every axis starts at zero, and each group has its own.".to_owned(),
            figures: groups.iter().map(figure).collect(),
            below: captions.into_iter().flatten().collect(),
            ..Figures::default()
        })
    })
}

/// What differs from what, as a figure.
pub(super) fn forest(pairs: &[PairRow<'_>], record: &Record) -> Option<Section> {
    let what = match record.unit.is_counted() {
        true => "Relative difference of counts.",
        false => "Relative difference with its 95\u{A0}% interval.",
    };
    (!pairs.is_empty()).then(|| {
        Section::Figures(Figures {
            title: "What differs from what".to_owned(),
            key: figure::forest::key(record),
            caption: format!(
                "{what} The axis is even near zero and logarithmic beyond, so that small and large effects both \
                 show."
            ),
            figures: vec![Figure {
                markup: figure::forest::render(pairs, record),
                ..Figure::default()
            }],
            ..Figures::default()
        })
    })
}

/// The plots of trials, and what to know to read them.
pub(super) fn strips(record: &Record) -> Option<Section> {
    let mut cases: Vec<&CaseRecord> = record.cases.iter().collect();
    cases
        .retain(|case| case.status == Status::Ok && case.samples.iter().any(|one| !one.is_empty()));
    let line = match record.unit.is_counted() {
        true => "The line is the count.",
        false => "The line is the estimate, the band its interval.",
    };
    let mut caption = format!(
        "Each trial is {}, in the order in which they ran: left to right by epoch, each plot from its own smallest \
         to its largest trial, none left out. {line}",
        trials::one(record)
    );
    let many = |case: &&CaseRecord| {
        case.samples.iter().map(Vec::len).sum::<usize>() > figure::trials::DOTS
    };
    if cases.iter().any(many) {
        caption += " Where a case has many trials, those that fall together share a cell, darker for more; a \
                    single far one still has its own.";
    }
    if cases.len() > MOST_STRIPS {
        caption += &format!(
            " Of {} cases, the {MOST_STRIPS} with the widest intervals are shown; the table below has all.",
            number::count(cases.len() as u64)
        );
        let width = |case: &CaseRecord| {
            let raw = case.raw.as_ref();
            raw.and_then(words::half_width).unwrap_or(f64::INFINITY)
        };
        cases.sort_by(|a, b| width(b).total_cmp(&width(a)));
        cases.truncate(MOST_STRIPS);
    }
    let figure = |case: &CaseRecord| {
        Some(Figure {
            markup: figure::trials::render(case, record)?,
            ..Figure::default()
        })
    };
    let figures: Vec<Figure> = cases.into_iter().filter_map(figure).collect();
    (!figures.is_empty()).then(|| {
        Section::Figures(Figures {
            title: "Every trial".to_owned(),
            caption,
            figures,
            order: Order::Strips,
            ..Figures::default()
        })
    })
}
