//! A host that has more installed than is needed: udev, systemd, and the kernel's modules with settings for them, all of
//! them harmful. A guest with its files takes none of it. They are laid over /usr for one process and what it starts.

use bpfcost_target::guest::HOOKS;

use crate::{
    kept::valid_record,
    require,
    tool::{Said, Tool, said},
    visit::{QUICK, aside, assert_nothing_left},
};

/// Modules of the guest's kernel on the host: those of the store, or empty files of the same names.
pub(crate) const GOOD: &str = "cp -rs";
const BAD: &str = "cp -r --attributes-only";

/// Programs that a system starts as it boots end the run, as soon as the shared folder is there. (On a host there is none.)
const PLANT: &str = r#"
mkdir -p usr/bin usr/sbin usr/lib/systemd usr/lib/modules usr/lib/modprobe.d
for program in bin/udevadm bin/systemd-tmpfiles sbin/udevd lib/systemd/systemd-udevd; do
    cat >usr/$program <<'END'
#!/bin/sh
for second in 1 2 3 4 5 6 7 8; do
    [ -e /run/bpfcost/stream ] && echo '{"gone":99}' >>/run/bpfcost/stream && exit
    sleep 1
done
END
    chmod +x usr/$program
done
$COPY $MODULES usr/lib/modules/
[ -s usr/lib/modules/$RELEASE/modules.dep ] || cp $MODULES/modules.* usr/lib/modules/$RELEASE/
echo 'install dummy /bin/false' >usr/lib/modprobe.d/planted.conf
mount -t overlay -o lowerdir=$PWD/usr:/usr planted /usr
exec $BPFCOST $ARGS
"#;

/// Output of a run on such a host.
#[track_caller]
pub(crate) fn planted(tool: &Tool, copy: &str, line: &str) -> Said {
    let image = require::image(require::kernel().expect("a kernel"));
    let name = image.file_name().expect("a name").to_string_lossy();
    let release = name.strip_prefix("vmlinuz-").expect("a release");
    let tree = image.ancestors().nth(2).expect("a tree");
    let mut shell = aside(tool, PLANT);
    shell
        .env("COPY", copy)
        .env("RELEASE", release)
        .env("MODULES", tree.join("lib/modules").join(release))
        .env("ARGS", line)
        // It has the host's files then.
        .env(HOOKS, r#"{"before": ":"}"#);
    let said = said(&shell.output().expect("unshare runs"));
    assert_nothing_left(tool);
    said
}

#[test]
fn a_guest_is_the_same_whatever_its_host_has_installed() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    let line = format!("{QUICK} --on vm:{kernel} --out x.json");
    let said = planted(&tool, BAD, &line);
    assert_eq!(said.code, Some(0), "{said:?}");
    valid_record(&tool);
}
