//! Each subcommand that people see has a page and is completed by each shell; hidden ones are in neither.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use tempfile::TempDir;

/// The names of a command and of all below it, as in `bpfcost-kernel-add`.
fn names(command: &clap::Command, name: &str, hidden: bool, names: &mut Vec<(String, bool)>) {
    names.push((name.to_owned(), hidden));
    for below in command.get_subcommands() {
        let hidden = hidden || below.is_hide_set();
        self::names(
            below,
            &format!("{name}-{}", below.get_name()),
            hidden,
            names,
        );
    }
}

/// Commands by whether they are hidden.
fn commands(hidden: bool) -> BTreeSet<String> {
    let mut all = Vec::new();
    names(&bpfcost::cli::command(), "bpfcost", false, &mut all);
    let some = all.into_iter().filter(|(_, is)| *is == hidden);
    some.map(|(name, _)| name).collect()
}

/// A folder with all that the program writes.
fn written() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let status = Command::new(env!("CARGO_BIN_EXE_bpfcost-manual"))
        .arg(folder.path())
        .status();
    assert!(status.expect("it starts").success());
    folder
}

fn read(folder: &TempDir, name: &str) -> String {
    fs::read_to_string(folder.path().join(name)).expect("a file")
}

#[test]
fn each_visible_command_has_a_page() {
    let folder = written();
    let entries = fs::read_dir(folder.path().join("man")).expect("a folder of pages");
    let pages: BTreeSet<String> = entries
        .map(|entry| entry.expect("an entry").path())
        .map(|path| stem(&path))
        .collect();
    assert_eq!(pages, commands(false));
    assert!(pages.contains("bpfcost-kernel-add"), "{pages:?}");
    let page = read(&folder, "man/bpfcost.1");
    for text in [
        "bpfcost\\-overhead(1)",
        "Exit codes",
        env!("CARGO_PKG_VERSION"),
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("commit:"), "{page}");
    assert!(read(&folder, "man/bpfcost-run.1").contains("\\-\\-quick"));
}

fn stem(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str());
    let stem = name.and_then(|name| name.strip_suffix(".1"));
    stem.expect("a page of section 1").to_owned()
}

#[test]
fn each_shell_completes_the_visible_commands() {
    let folder = written();
    let hidden = commands(true);
    assert!(hidden.contains("bpfcost-guest"), "{hidden:?}");
    for file in ["bash/bpfcost.bash", "zsh/_bpfcost", "fish/bpfcost.fish"] {
        let text = read(&folder, file);
        let words: BTreeSet<&str> = text
            .split(|letter: char| !letter.is_alphanumeric() && letter != '-')
            .collect();
        let last = |name: &str| name.rsplit("kernel-").next().map(str::to_owned);
        for name in commands(false) {
            let name = name.strip_prefix("bpfcost-").unwrap_or(&name);
            let name = last(name).expect("a word");
            assert!(words.contains(name.as_str()), "{file} lacks {name}");
        }
        for name in ["agent", "reaper"] {
            assert!(!words.contains(name), "{file} has {name}");
        }
    }
}
