//! A record as a picture: the one in README is current, and its words stay within it in a real browser.

use std::fs;

use anyhow::{Context, Result};

use bpfcost_record::Record;
use serde_json::json;

use crate::common::{
    browser::{self, Browser},
    sample_exact, sample_grid, sample_record,
};

/// Words that leave the card, and words in a line that meet.
const MISPLACED: &str = "(() => {
    const card = document.querySelector('.card').getBoundingClientRect();
    const texts = [...document.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
    const outside = texts.filter(([, b]) => b.left < card.left || b.right > card.right || b.bottom > card.bottom);
    const meeting = texts.filter(([, a], i) => texts.slice(i + 1).some(([, b]) =>
        a.left < b.right && b.left < a.right && a.top < b.bottom - 4 && b.top < a.bottom - 4));
    return [...outside, ...meeting].map(([words]) => words);
})()";

fn record(text: &str) -> Result<Record> {
    serde_json::from_str(text).context("a record")
}

#[test]
fn the_picture_in_readme_is_current() -> Result<()> {
    let record = record(include_str!("../../../../docs/overhead.json"))?;
    let picture = bpfcost_pages::picture(&record).context("a picture")?;
    let kept = include_str!("../../../../docs/overhead.svg");
    assert!(
        picture == kept,
        "docs/overhead.svg is not what bpfcost makes of docs/overhead.json now\n  \
         Make it again: bpfcost report docs/overhead.json -o docs/overhead.svg"
    );
    Ok(())
}

#[test]
fn words_have_room() -> Result<()> {
    let Some(chromium) = browser::find() else {
        crate::require::skip("there is no Chromium in /usr/bin/chromium or BPFCOST_CHROMIUM");
        return Ok(());
    };
    let mut browser = Browser::start(&chromium).context("Chromium starts")?;
    let folder = tempfile::tempdir()?;
    let records = [
        record(include_str!("../../../../docs/overhead.json"))?,
        sample_record::flawed(),
        sample_exact::old(),
    ];
    for (number, record) in records.iter().enumerate() {
        let file = folder.path().join(format!("{number}.svg"));
        fs::write(&file, bpfcost_pages::picture(record).context("a picture")?)?;
        browser.open(&file, 900, "light")?;
        assert_eq!(browser.eval(MISPLACED)?, json!([]), "{}", record.experiment);
        let rows = browser.eval("document.querySelectorAll('.name').length")?;
        assert!(rows.as_u64() > Some(2), "{rows}");
    }
    Ok(())
}

#[test]
fn too_many_cases_make_no_picture() {
    let record = sample_grid::old();
    assert!(record.cases.len() > 40);
    assert_eq!(bpfcost_pages::picture(&record), None);
}
