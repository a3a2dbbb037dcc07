//! A run that came to its end, measured once for all tests: its answer and its journal.

use std::{fs, sync::OnceLock};

use crate::{
    running::Running,
    tool::{QUICK, Tool},
};

/// Output of a whole run on stdout with `--format json`, and all that its journal held.
pub(crate) struct Finished {
    pub(crate) json: String,
    pub(crate) journal: String,
}

pub(crate) fn finished() -> &'static Finished {
    static ONE: OnceLock<Finished> = OnceLock::new();
    ONE.get_or_init(|| {
        let tool = Tool::new();
        let mut run = Running::start(&tool, &format!("{QUICK} --format json"));
        run.until(|journal| !journal.is_empty());
        // A second name keeps it when the run removes the first.
        fs::hard_link(tool.path("x.json.journal"), tool.path("kept")).expect("a link");
        let said = run.end();
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.err.contains("record: x.json"), "{said:?}");
        Finished {
            json: said.out,
            journal: fs::read_to_string(tool.path("kept")).expect("the journal"),
        }
    })
}

/// A folder in which that run could not write its record: `x.json` is still to be made.
pub(crate) fn unwritten() -> Tool {
    let tool = Tool::new();
    tool.write("x.json.journal", &finished().journal);
    tool
}
