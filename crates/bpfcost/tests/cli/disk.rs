//! A disk that fills up while a run measures: what there is is shown, and nothing is lost.

use std::fs;

use crate::{
    journals::{assert_holds, record, trials},
    require,
    tool::Tool,
};

/// Mounts a small disk that no one else sees, fills it in the middle of a run, makes room again, and continues until
/// one more epoch is measured whole. Copies the results off the disk, which goes with the shell.
const SCRIPT: &str = r#"
mkdir disk && mount -t tmpfs -o size=1200k none disk || exit 99
$BPFCOST run xdp-lb --case pass-non-ip --seed 7 --time 300s --out disk/x.json >table 2>said &
run=$!
until grep -q '^{"trial"' disk/x.json.journal 2>/dev/null; do kill -0 $run || exit 98; sleep 0.05; done
cat /dev/zero >disk/filler 2>/dev/null
wait $run
echo $? >code
cp disk/x.json.journal journal
epochs() { grep -c '^{"epoch-finished"' "$1"; }
before=$(epochs journal)
rm disk/filler
$BPFCOST run --resume disk/x.json --format json >record 2>>said &
run=$!
until [ "$(epochs disk/x.json.journal)" -gt "$before" ]; do kill -0 $run || exit 98; sleep 0.05; done
kill -INT $run
wait $run
echo $? >>code
"#;

#[test]
fn a_disk_that_fills_up_loses_nothing() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    tool.write("script", SCRIPT);
    let mut shell = tool.wrapped("unshare", "--mount sh script");
    shell.env("BPFCOST", env!("CARGO_BIN_EXE_bpfcost"));
    let status = shell.status();
    let code = status.as_ref().ok().and_then(|status| status.code());
    if status.is_err() || code == Some(99) || !tool.path("code").exists() {
        assert_ne!(
            code,
            Some(98),
            "the run ended before: {:?}",
            read(&tool, "said")
        );
        require::skip("no file system can be mounted");
        return;
    }
    let said = read(&tool, "said");
    let codes = read(&tool, "code");
    assert_eq!(codes.lines().next(), Some("4"), "{said}");
    assert!(
        said.contains("can't write the journal disk/x.json.journal"),
        "{said}"
    );
    assert!(
        said.contains("make room and continue with --resume"),
        "{said}"
    );
    assert!(read(&tool, "table").contains("pass-non-ip"), "{said}");
    let kept = trials(&read(&tool, "journal"));
    assert!(!kept.is_empty());
    assert_holds(&record(&read(&tool, "record")), &kept);
}

fn read(tool: &Tool, name: &str) -> String {
    fs::read_to_string(tool.path(name)).unwrap_or_default()
}

#[test]
fn a_disk_without_room_is_refused_before_anything_is_measured() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    tool.write(
        "script",
        "mkdir disk && mount -t tmpfs -o size=512k none disk || exit 99\n\
         $BPFCOST run xdp-lb --out disk/x.json\ncode=$?\nls -A disk >left\nexit $code",
    );
    let mut shell = tool.wrapped("unshare", "--mount sh script");
    shell.env("BPFCOST", env!("CARGO_BIN_EXE_bpfcost"));
    let said = crate::tool::said(&shell.output().expect("unshare runs"));
    if !tool.path("left").exists() {
        require::skip("no file system can be mounted");
        return;
    }
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(&["can't write disk/x.json", "make room", "--out"]);
    assert_eq!(read(&tool, "left"), "", "nothing is left behind");
}
