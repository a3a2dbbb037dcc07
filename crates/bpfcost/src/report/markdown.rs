//! Markdown for a pull request or an issue: the same tables, as GitHub shows them.

use std::fmt::Write;

use crate::{
    record::{Record, Status},
    report::{
        block::Block,
        cpus,
        number::{self, MISSING},
        parts,
        rows::{self, Group, PairRow},
        scaling::Chart,
        sheet::{self, Sheet},
        summary, target, text, warnings, words,
        workload::Overhead,
    },
};

/// The record as Markdown.
pub fn render(record: &Record) -> String {
    let mut out = String::new();
    let title = format!(
        "{} on {}",
        text::line(&record.experiment),
        target::label(record)
    );
    let _ = writeln!(out, "### {}\n", escape(&title));
    let _ = writeln!(out, "{}\n", escape(&summary::sentence(record)));
    match (Sheet::new(record), Chart::new(record)) {
        _ if record.layout.workload().is_some() => workload(&mut out, record),
        (Some(sheet), _) => sheet_and_notes(&mut out, &sheet),
        (None, Some(chart)) => curves(&mut out, &chart),
        (None, None) => {
            cases(&mut out, &rows::groups(record), record);
            several_cpus(&mut out, record);
            comparisons(&mut out, &rows::pairs(record), record);
        }
    }
    for block in parts::blocks(record) {
        block.markdown(&mut out);
    }
    invalid(&mut out, record);
    let warnings = warnings::lines(record);
    if !warnings.is_empty() {
        out.push_str("**Warnings**\n\n");
        for warning in warnings {
            let _ = writeln!(out, "- {}", escape(&warning));
        }
        out.push('\n');
    }
    let _ = writeln!(out, "{}", escape(&origin(record)));
    number::plain_spaces(&out)
}

/// What probes cost a workload.
fn workload(out: &mut String, record: &Record) {
    let Some(overhead) = Overhead::new(record) else {
        return;
    };
    for block in overhead.blocks(false).iter().chain(&overhead.calls()) {
        block.markdown(out);
    }
}

/// One table of all cells, and what is to know of it.
fn sheet_and_notes(out: &mut String, sheet: &Sheet<'_>) {
    out.push_str(&sheet::markdown(sheet));
    let notes = sheet.notes().into_iter().chain(sheet.captions());
    let lines: Vec<String> = notes.map(|line| escape(&line)).collect();
    let _ = writeln!(out, "\n{}\n", lines.join("  \n"));
}

/// The curves, and what is on none.
fn curves(out: &mut String, chart: &Chart<'_>) {
    let blocks = |out: &mut String, blocks: Vec<Block>| {
        for block in blocks {
            block.markdown(out);
        }
    };
    blocks(out, chart.blocks(false));
    cases(out, &chart.others(), chart.record);
    comparisons(out, &chart.other_pairs(), chart.record);
    blocks(out, chart.predicted(true));
}

/// What cases cost.
fn cases(out: &mut String, groups: &[Group<'_>], record: &Record) {
    for group in groups {
        let _ = writeln!(
            out,
            "| {} | {} | {} | net | note |",
            escape(&group.name),
            record.unit,
            words::spread_heading(record.unit)
        );
        out.push_str("|:--|--:|:--|:--|:--|\n");
        for row in &group.rows {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} |",
                code(&row.name),
                escape(&row.cost),
                escape(&row.interval),
                escape(&row.net),
                escape(&row.note())
            );
        }
        out.push('\n');
    }
    if !groups.is_empty() {
        let captions: Vec<String> = words::captions(record).iter().map(|c| escape(c)).collect();
        let _ = writeln!(out, "{}\n", captions.join("  \n"));
    }
}

/// Where a record comes from, in a line.
pub fn origin(record: &Record) -> String {
    let machine = &record.machine;
    let kernel = match machine.kernel.is_empty() {
        true => MISSING.to_owned(),
        false => text::line(&machine.kernel),
    };
    let emulator = machine
        .emulator
        .as_deref()
        .map_or_else(String::new, |emulator| {
            format!(" in {}", text::line(emulator))
        });
    format!(
        "bpfcost {}, {}, Linux {kernel} on {}{emulator}, seed {}.",
        text::line(&record.bpfcost),
        text::line(&record.started),
        text::line(&machine.cpu),
        record.seed
    )
}

/// What each CPU did, where there were several.
fn several_cpus(out: &mut String, record: &Record) {
    let rows = cpus::rows(record);
    if rows.is_empty() {
        return;
    }
    let columns = cpus::columns(record);
    let _ = writeln!(
        out,
        "| {} on each CPU | {} |",
        record.unit,
        columns.join(" | ")
    );
    let _ = writeln!(out, "|:--|{}", "--:|".repeat(columns.len()));
    for row in rows {
        let cells: Vec<String> = row.cells().iter().map(|(text, _)| escape(text)).collect();
        let _ = writeln!(out, "| {} | {} |", code(&row.name), cells.join(" | "));
    }
    let _ = writeln!(out, "\n{}\n", cpus::CAPTION);
}

fn comparisons(out: &mut String, pairs: &[PairRow<'_>], record: &Record) {
    if pairs.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "| case | against | difference ({}) | {} | verdict |",
        record.unit,
        words::relative_heading(record.unit)
    );
    out.push_str("|:--|:--|:--|:--|:--|\n");
    for pair in pairs {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            code(&pair.case),
            code(&pair.baseline),
            escape(format!("{} {}", pair.difference, pair.difference_interval).trim_end()),
            escape(format!("{} {}", pair.relative, pair.interval).trim_end()),
            escape(&pair.verdict)
        );
    }
    let _ = writeln!(out, "\n{}\n", escape(&words::pair_caption(record)));
}

fn invalid(out: &mut String, record: &Record) {
    let cases = record
        .cases
        .iter()
        .filter(|case| case.status == Status::Invalid);
    for case in cases {
        for (problem, details) in words::invalid_lines(case, record) {
            // Four spaces make a block that no text inside can end.
            let _ = writeln!(out, "    {problem}");
            for detail in details {
                let _ = writeln!(out, "      {detail}");
            }
        }
        out.push('\n');
    }
}

/// A name in backticks.
pub(super) fn code(name: &str) -> String {
    let name = name.replace('`', "'").replace('|', "\\|");
    match name.trim().is_empty() {
        true => MISSING.to_owned(),
        false => format!("`{name}`"),
    }
}

/// Text in which nothing is Markdown or HTML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '#' | '~' | '@' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}
