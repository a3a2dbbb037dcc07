//! Each way in which a guest can fail: one sentence, its last words, exit code 4, within a bounded time,
//! and nothing left.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use bpfcost_target::guest::HOOKS;

use crate::{
    planted::{GOOD, planted},
    require,
    tool::Tool,
    visit::{QUICK, Visit, assert_nothing_left, command, refused, signal},
};

/// A run on the usual kernel with a fault put in.
#[track_caller]
fn fails(hooks: &str, words: &[&str]) {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let line = format!("{QUICK} --on vm:{kernel}");
    refused(&Tool::new(), &line, hooks, words);
}

#[test]
fn panics() {
    fails(
        r#"{"before": "echo c >/proc/sysrq-trigger"}"#,
        &[
            "had a kernel panic: sysrq triggered crash",
            "Last lines of its console:",
        ],
    );
}

#[test]
fn panics_while_it_boots() {
    fails(
        r#"{"kernel": "-- --version"}"#,
        &["had a kernel panic: ", "Last lines of its console:"],
    );
}

#[test]
fn hangs_while_it_boots() {
    fails(
        r#"{"before": "sleep 1000", "boot_s": 30, "asleep_s": 30}"#,
        &[
            "has not booted within",
            "in which QEMU got",
            "s of CPU time",
            "Last lines of its console:",
        ],
    );
}

/// QEMU gets no CPU for longer than a boot may take. A limit in wall time would end it.
#[test]
fn gets_no_cpu_while_it_boots() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    // Never by KVM, which would be given up.
    let line = format!("{QUICK} --on exact:{kernel}");
    let hooks = r#"{"boot_s": 30, "asleep_s": 100000}"#;
    let mut visit = Visit::start(&tool, &line, hooks);
    let qemu = visit.qemu(&tool);
    signal(qemu, "STOP");
    sleep(Duration::from_secs(35));
    signal(qemu, "CONT");
    let said = visit.end();
    assert_nothing_left(&tool);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn hangs_in_the_middle() {
    // It stops everything else as soon as something is in the stream.
    fails(
        r#"{"before": "(while [ ! -s /run/bpfcost/stream ]; do sleep 0.1; done; killall -STOP bpfcost) &",
            "silence_s": 20, "asleep_s": 20}"#,
        &["hangs: no message from it for", "in which QEMU got"],
    );
}

#[test]
fn the_program_in_it_is_killed() {
    fails(
        r#"{"before": "(while [ ! -s /run/bpfcost/stream ]; do sleep 0.1; done; killall -KILL bpfcost) &"}"#,
        &["killed the measuring program"],
    );
}

#[test]
fn runs_out_of_memory() {
    // Without the first, a slow guest may read its programs again and again instead.
    fails(
        r#"{"memory_mib": 400, "before": "echo 1000 >/sys/kernel/mm/lru_gen/min_ttl_ms; echo 1 >/proc/sys/vm/panic_on_oom; tail /dev/zero"}"#,
        &["ran out of memory", "Last lines of its console:"],
    );
}

#[test]
fn has_too_little_memory_to_boot() {
    fails(r#"{"memory_mib": 24}"#, &["too little memory"]);
}

#[test]
fn has_no_btf() {
    fails(
        r#"{"before": "mount -t tmpfs none /sys/kernel/btf"}"#,
        &["in the guest", "CONFIG_DEBUG_INFO_BTF is not set"],
    );
}

/// A guest goes on where the first one had its modules, whose state was kept. What is damaged is not taken: it boots, and
/// is kept again. Of that, a run that is killed meanwhile leaves nothing.
#[test]
fn has_a_kept_state_that_is_damaged() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    let cache = tool.path("cache");
    let guests = cache.join("bpfcost/guests");
    let kept = || -> Vec<PathBuf> {
        let files = fs::read_dir(&guests).into_iter().flatten();
        files.map(|file| file.expect("a file").path()).collect()
    };
    // By its path, since kernels are kept in a cache too.
    let line = format!("{QUICK} --on exact:{}", require::image(kernel).display());
    let run = || {
        let mut command = command(&tool, &line);
        command
            .env("XDG_CACHE_HOME", &cache)
            .env(HOOKS, r#"{"before": "exit"}"#);
        Visit::spawn(&tool, &mut command)
    };
    let runs = || {
        let said = run().end();
        assert_nothing_left(&tool);
        assert_eq!(said.code, Some(4), "{said:?}");
        said.complains(&["ended before it had booted"]);
        let [file] = kept().try_into().expect("one guest is kept");
        let inode = fs::metadata(&file).expect("it is there").ino();
        (file, inode)
    };
    let (file, first) = runs();
    assert_eq!(runs(), (file.clone(), first), "nothing was kept again");
    let damaged = fs::OpenOptions::new().write(true).open(&file);
    let damaged = damaged.expect("a file");
    let whole = damaged.metadata().expect("it is there").len();
    damaged.set_len(whole / 2).expect("half of it");
    let mut third = run();
    third.wait_for(|_| kept().iter().any(|path| path.is_dir()));
    assert!(!file.exists(), "what is damaged is still there");
    third.signal("KILL");
    third.end();
    assert_nothing_left(&tool);
    assert_eq!(kept(), [] as [PathBuf; 0]);
}

/// A kernel of the test's own: its image made from a good one, its modules those of `modules`.
fn kernel(tool: &Tool, make: impl Fn(&[u8]) -> Vec<u8>, modules: Option<&Path>) -> Option<PathBuf> {
    let image = require::image(require::kernel()?);
    let name = image.file_name().expect("a name");
    let boot = tool.path("boot");
    fs::create_dir(&boot).expect("a folder");
    fs::write(boot.join(name), make(&fs::read(&image).expect("an image"))).expect("an image");
    if let Some(modules) = modules {
        fs::create_dir(tool.path("lib")).expect("a folder");
        symlink(modules, tool.path("lib/modules")).expect("a link");
    }
    Some(boot.join(name))
}

#[track_caller]
fn does_not_boot(
    make: impl Fn(&[u8]) -> Vec<u8>,
    modules: Option<&Path>,
    boot_s: u32,
    words: &[&str],
) {
    let tool = Tool::new();
    let Some(image) = kernel(&tool, make, modules) else {
        return;
    };
    let said = crate::visit::says(
        &tool,
        &format!("{QUICK} --on vm:{}", image.display()),
        &format!(r#"{{"boot_s": {boot_s}, "asleep_s": {boot_s}}}"#),
    );
    assert!(matches!(said.code, Some(2 | 4)), "{said:?}");
    said.complains(words);
}

#[test]
fn has_an_image_that_is_none() {
    does_not_boot(|_| vec![0x5a; 100_000], None, 20, &["image"]);
}

#[test]
fn has_half_an_image() {
    does_not_boot(
        |image| image[..image.len() / 4].to_vec(),
        None,
        20,
        &["image"],
    );
}

#[test]
fn has_an_image_with_a_good_header_alone() {
    does_not_boot(
        |image| {
            let mut image = image.to_vec();
            image[65536..].fill(0);
            image
        },
        None,
        20,
        &["image"],
    );
}

/// The guest boots up to the shared folder, though the host has modules of that kernel, for itself.
#[test]
fn has_no_modules() {
    let (tool, empty) = (Tool::new(), Tool::new());
    let Some(image) = kernel(&tool, <[u8]>::to_vec, Some(&empty.path(""))) else {
        return;
    };
    let said = planted(&tool, GOOD, &format!("{QUICK} --on vm:{}", image.display()));
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(&["its modules 9p"]);
}
