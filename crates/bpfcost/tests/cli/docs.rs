//! The pages of the documentation: each link leads somewhere, each page is in the index, and each command that is marked
//! as runnable runs.
//!
//! A block of commands that begins with "```sh run" is run, line by line, in a separate folder, in which `docs` and
//! `experiments` are those of the repository. A block that shows a command's output begins with its command, behind a `$`:
//! those take minutes, and `make examples` runs them, with the release build. Links into the web are not followed: tests must pass without a network.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
    process::Command,
};

use regex::Regex;

use crate::tool::{Tool, said};

/// Words of a page at most, as `wc -w` counts.
const MAX_WORDS: [(&str, usize); 3] = [
    ("README.md", 1500),
    ("METHODOLOGY.md", 2500),
    ("ARCHITECTURE.md", 2000),
];

pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository")
}

/// The pages, by their path from the repository's root.
fn pages() -> BTreeMap<PathBuf, String> {
    let root = root();
    let mut folders = vec![root.join("docs"), root.join("crates")];
    let mut files: Vec<PathBuf> = markdown(&root);
    while let Some(folder) = folders.pop() {
        files.extend(markdown(&folder));
        let entries = fs::read_dir(&folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        folders.extend(paths.filter(|path| path.is_dir()));
    }
    let page = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a page");
        let path = path.strip_prefix(&root).expect("in the repository");
        (path.to_owned(), text)
    };
    files.into_iter().map(page).collect()
}

fn markdown(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        // Records of reports, not pages.
        .filter(|path| {
            !path
                .components()
                .any(|part| part.as_os_str() == "tests" && !path.ends_with("README.md"))
        })
        .collect()
}

/// The text without its blocks of code, which hold no links and no headings.
fn prose(text: &str) -> String {
    let mut code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let prose = prose(text);
    for heading in prose.lines().filter(|line| line.starts_with('#')) {
        let name = heading.trim_start_matches('#').trim().to_lowercase();
        let letters = name.chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            letter => letter.is_alphanumeric().then_some(letter),
        });
        let name: String = letters.collect();
        let numbered = (1..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

/// Links of a page within the repository: a path from the root, and an anchor.
fn links(page: &Path, text: &str) -> Vec<(PathBuf, Option<String>)> {
    let link = Regex::new(r"\]\(([^()\s]+)\)|(?:src|href)=.([^'\x22\s]+)").expect("a pattern");
    let prose = prose(text);
    let targets = link.captures_iter(&prose).map(|groups| {
        let group = groups.get(1).or(groups.get(2)).expect("one of the two");
        group.as_str().to_owned()
    });
    let within = targets.filter(|target| !target.starts_with("http"));
    let resolved = within.map(|target| {
        let (path, anchor) = match target.split_once('#') {
            Some((path, anchor)) => (path.to_owned(), Some(anchor.to_owned())),
            None => (target, None),
        };
        let folder = page.parent().expect("a folder");
        let path = match path.as_str() {
            "" => page.to_owned(),
            path => folder.join(path),
        };
        (plain(&path), anchor)
    });
    resolved.collect()
}

/// The path without `.` and `..`.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn links_lead_somewhere() {
    let (root, pages) = (root(), pages());
    let mut followed = 0;
    for (page, text) in &pages {
        for (target, anchor) in links(page, text) {
            let link = format!("{} links to {}", page.display(), target.display());
            assert!(root.join(&target).exists(), "{link}, which is not there");
            if let Some(anchor) = anchor {
                let text = pages.get(&target);
                let anchors = anchors(text.unwrap_or_else(|| panic!("{link}#{anchor}")));
                assert!(anchors.contains(&anchor), "{link}#{anchor}: {anchors:?}");
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "{followed}");
}

#[test]
fn the_index_has_every_page() {
    let pages = pages();
    let index = Path::new("docs/README.md");
    let linked: BTreeSet<PathBuf> = links(index, &pages[index])
        .into_iter()
        .map(|(page, _)| page)
        .collect();
    let own = |page: &&PathBuf| !page.starts_with("crates") && *page != index;
    for page in pages.keys().filter(own) {
        assert!(
            linked.contains(page),
            "docs/README.md does not link to {}",
            page.display()
        );
    }
}

#[test]
fn pages_stay_short() {
    let pages = pages();
    for (page, most) in MAX_WORDS {
        let words = pages[Path::new(page)].split_whitespace().count();
        assert!(words <= most, "{page} has {words} words, at most {most}");
    }
}

/// The command at the beginning of each block that shows what it prints, with the page.
fn commands_with_output() -> Vec<(PathBuf, String)> {
    let mut commands = Vec::new();
    for (page, text) in pages() {
        if page != Path::new("README.md") && !page.starts_with("docs/experiments") {
            continue;
        }
        let mut lines = text.lines();
        while lines.any(|line| line.trim_end() == "```") {
            let Some(first) = lines.next().and_then(|line| line.strip_prefix("$ ")) else {
                // The end of a block, or one that shows a drawing.
                continue;
            };
            let mut command = first.to_owned();
            while command.ends_with('\\') {
                command.pop();
                command += lines.next().expect("the command goes on").trim_start();
            }
            commands.push((page.clone(), command));
        }
    }
    commands
}

#[test]
fn pages_show_commands_with_their_output() {
    let commands = commands_with_output();
    let of_readme = commands
        .iter()
        .filter(|(page, _)| page == Path::new("README.md"));
    assert!(of_readme.count() >= 6, "{commands:?}");
    for (page, command) in &commands {
        let words = shlex::split(command).unwrap_or_else(|| panic!("{}", page.display()));
        let program = words.iter().find(|word| *word != "sudo");
        assert_eq!(program.map(String::as_str), Some("bpfcost"), "{command}");
    }
}

/// As they are typed, but for `sudo`. Each ends well, or with the exit code of a gate that it asks for.
#[test]
#[ignore = "takes minutes: make examples"]
fn commands_with_their_output_run() {
    let program = std::env::var("BPFCOST_EXAMPLES");
    let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_bpfcost").to_owned());
    let mut failed = Vec::new();
    for (page, command) in commands_with_output() {
        let command = command.trim_start_matches("sudo ").to_owned();
        let tool = Tool::new();
        let words = shlex::split(&command).expect("words");
        let mut run = tool.with_caches(tool.wrapped(&program, ""));
        let begun = std::time::Instant::now();
        let output = said(&run.args(&words[1..]).output().expect("the binary runs"));
        let (page, seconds) = (page.display(), begun.elapsed().as_secs());
        println!("{page}: {command}: {:?} after {seconds} s", output.code);
        let is_gate = words.iter().any(|word| word == "--budget");
        if output.code != Some(0) && !(is_gate && output.code == Some(1)) {
            failed.push(format!("{page}: {command}: {output:?}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn commands_marked_as_runnable_run() {
    let mut run = 0;
    for (page, text) in pages() {
        let mut lines = text.lines();
        while lines.any(|line| line.trim_end() == "```sh run") {
            // Each block begins in a fresh folder.
            let tool = Tool::new();
            for folder in ["docs", "experiments"] {
                symlink(root().join(folder), tool.path(folder)).expect("a link");
            }
            for line in lines.by_ref().take_while(|line| !line.starts_with("```")) {
                let command = line.split(" # ").next().expect("a command").trim();
                let words =
                    shlex::split(command).unwrap_or_else(|| panic!("{}: {line}", page.display()));
                assert_eq!(words.first().map(String::as_str), Some("bpfcost"), "{line}");
                let mut command: Command = tool.command("");
                let output = said(&command.args(&words[1..]).output().expect("the binary runs"));
                assert_eq!(
                    output.code,
                    Some(0),
                    "{}: {line}: {output:?}",
                    page.display()
                );
                run += 1;
            }
        }
    }
    assert!(run >= 5, "{run} commands");
}
