//! Records as each renderer shows them, with what their experiments show of their own.

use bpfcost::{
    builtin::view,
    record::Record,
    report::{
        atlas, markdown as document, rate::Load, section::Detail, style::Style,
        terminal,
    },
};

pub fn table(record: &Record, style: Style) -> String {
    terminal::render(&view::of(record, Detail::Brief, Load::default()), style)
}

pub fn verbose(record: &Record, style: Style) -> String {
    terminal::render(&view::of(record, Detail::Full, Load::default()), style)
}

pub fn markdown(record: &Record) -> String {
    document::render(&view::of(record, Detail::Document, Load::default()))
}

pub fn html(records: &[Record]) -> anyhow::Result<String> {
    view::page(records, Load::default())
}

pub fn atlas(records: &[Record]) -> String {
    atlas::render(records, markdown)
}
