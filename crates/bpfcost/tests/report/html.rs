//! The HTML report in a real browser: on a phone and on a desk, light and dark.
//!
//! `BPFCOST_SHOTS=DIR` keeps screenshots of what was tested there. Where there is no Chromium the
//! tests are skipped, unless `BPFCOST_REQUIRE` contains `host`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::common::{
    browser::{self, Browser},
    sample_exact, sample_grid, sample_record, sample_scaling, sample_workload, views,
};
use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use bpfcost_record::Record;
use serde_json::json;

/// A started browser; `None` where there is none, with the reason printed.
fn start() -> Option<Browser> {
    let Some(chromium) = browser::find() else {
        crate::require::skip("there is no Chromium in /usr/bin/chromium or BPFCOST_CHROMIUM");
        return None;
    };
    Some(Browser::start(&chromium).expect("Chromium starts"))
}

/// The page of some records, as a file.
fn page(records: &[Record]) -> Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.html");
    fs::write(&file, views::html(records)?)?;
    Ok((folder, file))
}

/// Keeps screenshots where `BPFCOST_SHOTS` says.
fn keep(browser: &mut Browser, name: &str) -> Result<()> {
    if let Some(folder) = env::var_os("BPFCOST_SHOTS") {
        fs::create_dir_all(&folder)?;
        for (part, shot) in browser.screenshots()?.iter().enumerate() {
            let file = PathBuf::from(&folder).join(format!("{name}-{part}.png"));
            fs::write(file, BASE64_STANDARD.decode(shot)?)?;
        }
    }
    Ok(())
}

/// Checks what must hold of every page at every width.
fn check(browser: &mut Browser, what: &str) -> Result<()> {
    assert_eq!(browser.complaints, Vec::<String>::new(), "{what}");
    let wide = browser.eval("[document.documentElement.scrollWidth, innerWidth]")?;
    assert!(
        wide[0].as_f64() <= wide[1].as_f64(),
        "{what}: wider than the window: {wide}"
    );
    assert_eq!(
        browser.eval("document.querySelectorAll('h1').length")?,
        json!(1),
        "{what}"
    );
    let flat = browser.eval(
        "[...document.querySelectorAll('figure, figure svg:not(svg svg)')].filter(e => {
            const r = e.getBoundingClientRect(); return r.width < 40 || r.height < 10; }).length",
    )?;
    assert_eq!(flat, json!(0), "{what}: figures without size");
    let unnamed = browser.eval(
        "[...document.querySelectorAll('svg[role=img]')].filter(e => !e.querySelector('title')?.textContent).length",
    )?;
    assert_eq!(unnamed, json!(0), "{what}: figures that say nothing");
    let overlaps = browser.eval(
        "[...document.querySelectorAll('.row')].filter(row => {
            const boxes = [...row.querySelectorAll('.label > *, .value')].map(e => e.getBoundingClientRect());
            const r = row.getBoundingClientRect();
            return boxes.some(b => b.right > r.right + 1 || b.left < r.left - 1);
        }).length",
    )?;
    assert_eq!(overlaps, json!(0), "{what}: rows that leave their figure");
    Ok(())
}

/// Opens a page on a phone and on a desk, light and dark, looks at what must hold of every page, and then at
/// what `more` asks.
fn everywhere(
    browser: &mut Browser,
    file: &Path,
    what: &str,
    mut more: impl FnMut(&mut Browser, &str) -> Result<()>,
) -> Result<()> {
    for width in [390, 1280] {
        for look in ["light", "dark"] {
            let what = format!("{what}-{look}-{width}");
            browser.open(file, width, look)?;
            check(browser, &what)?;
            keep(browser, &what)?;
            more(browser, &what)?;
        }
    }
    Ok(())
}

/// Cells of heat maps whose text leaves them.
const WIDE_CELLS: &str = "[...document.querySelectorAll('svg.heat g')].filter(e => {
    const [tile, text] = [e.querySelector('rect'), e.querySelector('text')].map(e => e.getBoundingClientRect());
    return text.left < tile.left - 1 || text.right > tile.right + 1;
}).map(e => e.textContent)";

/// Marks that leave their plot.
const MARKS_OUTSIDE: &str = "[...document.querySelectorAll('svg.lines')].flatMap(plot => {
    const r = plot.getBoundingClientRect();
    return [...plot.querySelectorAll('.spot path')].map(e => e.getBoundingClientRect())
        .filter(b => b.left < r.left - 1 || b.right > r.right + 1 || b.top < r.top - 1 || b.bottom > r.bottom + 1);
}).length";

/// Axes of plots whose labels meet.
const LABELS_THAT_MEET: &str = "[...document.querySelectorAll('.chart svg.axis')].filter(axis => {
    const boxes = [...axis.querySelectorAll('text')].map(e => e.getBoundingClientRect());
    return boxes.some((a, i) => boxes.slice(i + 1).some(b =>
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom));
}).map(e => e.textContent)";

#[test]
fn reads_on_a_phone_and_on_a_desk_in_both_schemes() -> Result<()> {
    let Some(mut browser) = start() else {
        return Ok(());
    };
    let (_folder, file) = page(&[sample_record::flawed()])?;
    let mut papers = Vec::new();
    everywhere(&mut browser, &file, "one", |browser, what| {
        let figures = browser.eval("document.querySelectorAll('figure').length")?;
        assert!(
            figures.as_u64() >= Some(7 + 26),
            "{what}: {figures} figures"
        );
        let colour = browser.eval("getComputedStyle(document.body).backgroundColor")?;
        papers.push(colour.as_str().unwrap_or_default().to_owned());
        Ok(())
    })?;
    assert_ne!(papers[0], papers[1], "dark is dark");
    browser.open(&file, 780, "print")?;
    keep(&mut browser, "print-780")?;
    let pdf = BASE64_STANDARD.decode(browser.pdf()?)?;
    assert!(pdf.starts_with(b"%PDF"));
    Ok(())
}

#[test]
fn tables_sort_by_mouse_and_by_keyboard() -> Result<()> {
    let Some(mut browser) = start() else {
        return Ok(());
    };
    let (_folder, file) = page(&[sample_record::flawed()])?;
    browser.open(&file, 1280, "light")?;
    let costs =
        "[...document.querySelector('table').tBodies[0].rows].map(r => r.cells[2].dataset.key)";
    let sort = "document.querySelector('table').tHead.rows[0].cells[2].ariaSort";
    let before = browser.eval(costs)?;
    assert_eq!(browser.eval(sort)?, json!("none"));
    let numbers = |keys: &serde_json::Value| -> Vec<f64> {
        let keys = keys.as_array().cloned().unwrap_or_default();
        keys.iter()
            .filter_map(|key| key.as_str()?.parse().ok())
            .collect()
    };
    browser.click("thead th:nth-child(3) button")?;
    let up = browser.eval(costs)?;
    assert_eq!(browser.eval(sort)?, json!("ascending"));
    assert!(numbers(&up).is_sorted());
    assert_eq!(numbers(&up).len(), 27);
    // Cases without a value stay at the end either way.
    assert_eq!(up[28], json!(""));
    browser.eval("document.querySelector('thead th:nth-child(3) button').focus()")?;
    browser.press("Enter", 13, "\r")?;
    let down = browser.eval(costs)?;
    assert_eq!(browser.eval(sort)?, json!("descending"));
    assert!(numbers(&down).is_sorted_by(|a, b| a >= b));
    assert_eq!(down[28], json!(""));
    browser.press("Enter", 13, "\r")?;
    assert_eq!(browser.eval(costs)?, before);
    // By words, too.
    browser.click("thead th:nth-child(1) button")?;
    let first = browser.eval("document.querySelector('tbody th').textContent")?;
    assert_eq!(first, json!("drop-v4-frag"));
    check(&mut browser, "sorted")
}

#[test]
fn several_runs_and_hostile_names() -> Result<()> {
    let Some(mut browser) = start() else {
        return Ok(());
    };
    let mut hostile = sample_record::sized(6, 2);
    let name = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>";
    hostile.experiment = name.to_owned();
    hostile.warnings[0].text = format!("\u{202e}{name}{{{{ 7 * 7 }}}}");
    for case in &mut hostile.cases {
        case.name = format!("{name}{}", case.name);
        case.group = name.to_owned();
        case.about = name.to_owned();
    }
    for pair in &mut hostile.comparisons {
        pair.case = name.to_owned();
    }
    let records = [
        sample_record::flawed(),
        hostile,
        sample_record::sized(300, 4),
    ];
    let (_folder, file) = page(&records)?;
    for width in [390, 1280] {
        browser.open(&file, width, "light")?;
        check(&mut browser, &format!("several-{width}"))?;
        assert_eq!(browser.eval("document.images.length")?, json!(0));
        assert_eq!(browser.eval("document.scripts.length")?, json!(1));
        assert_eq!(
            browser.eval("document.title")?,
            json!("What eBPF costs: 3 runs · bpfcost")
        );
        let links = browser.eval(
            "[...document.querySelectorAll('nav a')].filter(a => document.querySelector(a.getAttribute('href'))).length",
        )?;
        assert_eq!(links, json!(3));
        keep(&mut browser, &format!("several-{width}"))?;
    }
    Ok(())
}

#[test]
fn several_targets_have_a_matrix() -> Result<()> {
    let Some(mut browser) = start() else {
        return Ok(());
    };
    let name = "</title><script>document.title='owned'</script><img src=x onerror=alert(1)>";
    let mut hostile = sample_exact::counted("exact:7.3", "7.3.0", |_, count| count * 0.7);
    hostile.target = format!("exact:{name}");
    hostile.cases[2].name.push_str(name);
    let records = [
        sample_exact::old(),
        sample_exact::flawed(),
        sample_exact::emulated("vm:6.1", "6.1.0-40-amd64", 20.0),
        sample_record::flawed(),
        hostile,
    ];
    for (what, records) in [("matrix", &records[..4]), ("matrix-hostile", &records)] {
        let (_folder, file) = page(records)?;
        everywhere(&mut browser, &file, what, |browser, what| {
            // A row for each case, a cell for each target, each with what it says in words.
            let cells = browser.eval(
                "[...document.querySelectorAll('#matrix-1 svg.heat')].map(e => e.querySelectorAll('g').length)",
            )?;
            let cells: Vec<u64> = serde_json::from_value(cells)?;
            assert!(
                cells.len() >= 29 && cells.iter().all(|count| *count as usize == records.len()),
                "{cells:?}"
            );
            let unnamed = browser.eval(
                "[...document.querySelectorAll('svg.heat g')].filter(e => !e.querySelector('title')?.textContent).length",
            )?;
            assert_eq!(unnamed, json!(0));
            // What stands in a cell stays in it.
            assert_eq!(browser.eval(WIDE_CELLS)?, json!([]), "{what}");
            assert_eq!(browser.eval("document.images.length")?, json!(0));
            assert_eq!(browser.eval("document.scripts.length")?, json!(1));
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn grids_have_a_figure_of_all_cells() -> Result<()> {
    let Some(mut browser) = start() else {
        return Ok(());
    };
    let records = [
        sample_grid::oldest(),
        sample_grid::old(),
        sample_grid::new(),
        sample_grid::host(),
    ];
    let (_folder, file) = page(&records)?;
    everywhere(&mut browser, &file, "grid", |browser, what| {
        // What stands in a cell stays in it.
        assert_eq!(browser.eval(WIDE_CELLS)?, json!([]), "{what}");
        Ok(())
    })?;
    // A row a way, a cell a body; those that can't run have a line instead.
    let cells = browser.eval(
        "['#matrix-1', '#run-1', '#run-3'].map(id => [...document.querySelectorAll(id + ' svg.heat')].map(e => e.querySelectorAll('g').length))",
    )?;
    assert_eq!(cells, json!([vec![4; 11], vec![5; 6], vec![5; 11]]));
    Ok(())
}

#[test]
fn curves_are_told_apart() -> Result<()> {
    let Some(mut browser) = start() else {
        return Ok(());
    };
    let records = [
        sample_scaling::pools(12),
        sample_scaling::flawed(12),
        sample_scaling::emulated(12),
    ];
    for (what, records) in [("curves", &records[..1]), ("curves-several", &records[..])] {
        let (_folder, file) = page(records)?;
        everywhere(&mut browser, &file, what, |browser, what| {
            assert_eq!(browser.eval(MARKS_OUTSIDE)?, json!(0), "{what}");
            assert_eq!(browser.eval(LABELS_THAT_MEET)?, json!([]), "{what}");
            Ok(())
        })?;
    }
    // Eight pools, each with a legend entry and marks; four others.
    let figures = browser.eval(
        "[...document.querySelectorAll('#run-1 .curves')].map(e => ['.legend .key', '.spot path'].map(what => e.querySelectorAll(what).length))",
    )?;
    let small = json!([4, 16]);
    let wanted = json!([[8, 32], small, small, small, small]);
    assert_eq!(figures, wanted);
    let colours = browser.eval(
        "new Set([...document.querySelectorAll('#run-1 .curves')][0].querySelectorAll('.swatch').values().map(e => getComputedStyle(e).color)).size",
    )?;
    assert_eq!(colours, json!(8));
    Ok(())
}

#[test]
fn workloads_have_curves_stacks_and_latencies() -> Result<()> {
    let Some(mut browser) = start() else {
        return Ok(());
    };
    let mut hostile = sample_workload::several();
    let name = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>";
    sample_workload::describe(&mut hostile, |workload| {
        workload.prose = format!("{name}\n\n{{{{ 7 * 7 }}}}");
        workload.operation = name.to_owned();
        workload.variants[1].1 = name.to_owned();
    });
    for case in &mut hostile.cases {
        for value in case.factors.values_mut().filter(|value| *value == "map") {
            *value = name.to_owned();
        }
    }
    let records = [
        sample_workload::sizes(),
        sample_workload::one(0.045, 0.004, Some(0.1)),
        sample_workload::silent(),
        hostile,
    ];
    // Figures of each kind: curves along the size, latencies, stacks; and the bars of those.
    let figures = "[...document.querySelectorAll('section.record')].map(e =>
        ['svg.lines', 'p.legend:has(.k-part)', 'svg .whole'].map(what => e.querySelectorAll(what).length))";
    for (what, records, wanted) in [
        ("workload", &records[..1], json!([[2 + 4, 4, 12]])),
        (
            "workload-several",
            &records[1..],
            json!([[1, 1, 2], [1, 1, 1], [1, 1, 5]]),
        ),
    ] {
        let (_folder, file) = page(records)?;
        everywhere(&mut browser, &file, what, |browser, what| {
            assert_eq!(browser.eval(figures)?, wanted, "{what}");
            assert_eq!(browser.eval(MARKS_OUTSIDE)?, json!(0), "{what}");
            assert_eq!(browser.eval(LABELS_THAT_MEET)?, json!([]), "{what}");
            assert_eq!(browser.eval("document.images.length")?, json!(0));
            assert_eq!(browser.eval("document.scripts.length")?, json!(1));
            // Bars of one figure have one scale, and its axis is theirs.
            let scales = browser.eval(
                "[...document.querySelectorAll('figure:has(.k-part)')].filter(e =>
                    new Set([...e.querySelectorAll('.box')].map(b => Math.round(b.getBoundingClientRect().width))).size !== 1).length",
            )?;
            assert_eq!(scales, json!(0), "{what}");
            // The parts of a bar stand one behind the other, in colours of their own.
            let meet = browser.eval(
                "[...document.querySelectorAll('svg.plot')].filter(e => {
                    const parts = [...e.querySelectorAll('.part')];
                    const boxes = parts.map(e => e.getBoundingClientRect());
                    const colours = new Set(parts.map(e => getComputedStyle(e).fill));
                    return colours.size !== parts.length || boxes.some((b, i) => i > 0 && b.left < boxes[i - 1].right - 1);
                }).length",
            )?;
            assert_eq!(meet, json!(0), "{what}");
            Ok(())
        })?;
    }
    Ok(())
}
