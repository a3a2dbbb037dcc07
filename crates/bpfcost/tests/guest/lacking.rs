//! Machines that lack something for guests: what is missing, how to get it, and KVM that is there and
//! does not work.

use std::{env, fs, os::unix::fs::PermissionsExt};

use bpfcost_target::guest::Tools;

use crate::{
    require,
    tool::{Tool, said},
    visit::{self, QUICK, assert_nothing_left},
};

/// A file that can be run.
fn program(tool: &Tool, name: &str, text: &str) {
    fs::create_dir_all(tool.path("bin")).expect("a folder");
    tool.write(&format!("bin/{name}"), text);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(tool.path(&format!("bin/{name}")), mode).expect("its mode");
}

#[test]
fn programs_that_are_missing_are_named_with_a_way_to_get_them() {
    let tool = Tool::new();
    // A kernel that looks like one is enough: nothing gets as far as booting it.
    let Some(kernel) = require::kernel() else {
        return;
    };
    let refuses = |words: &[&str]| {
        let mut command = visit::command(&tool, &format!("{QUICK} --on vm:{kernel} --out x.json"));
        command.env("PATH", tool.path("bin"));
        let said = said(&command.output().expect("the binary runs"));
        assert_eq!(said.code, Some(4), "{said:?}");
        said.complains(words);
        assert_nothing_left(&tool);
    };
    refuses(&["guests need qemu-system-", "scripts/setup.sh run"]);
    for arch in ["x86_64", "aarch64"] {
        program(
            &tool,
            &format!("qemu-system-{arch}"),
            "#!/bin/sh\necho broken >&2\nexit 3\n",
        );
    }
    refuses(&["ended before it had booted", "broken"]);
}

/// Devices with a /dev/kvm that can be opened, whether or not there is one here.
const KVM: &str = r#"
mkdir -p dev && mount -t tmpfs dev dev
for device in null zero full random urandom tty; do
    touch dev/$device && mount --bind /dev/$device dev/$device
done
touch dev/kvm
mount --rbind dev /dev
exec $BPFCOST $ARGS
"#;

#[test]
fn kvm_that_hangs_is_found_out_once() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let real = Tools::find().expect("guests can be had").qemu;
    let tool = Tool::new();
    let name = real
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    program(
        &tool,
        &name,
        &format!(
            "#!/bin/sh\ncase \"$*\" in *accel=kvm*) exec sleep 1000 ;; esac\nexec {} \"$@\"\n",
            real.display()
        ),
    );
    let path = env::var("PATH").unwrap_or_default();
    // By its path, since kernels are kept in a cache too.
    let line = format!("{QUICK} --on vm:{}", require::image(kernel).display());
    let runs = || {
        let mut command = visit::aside(&tool, KVM);
        command
            .env("ARGS", &line)
            .env("PATH", format!("{}:{path}", tool.path("bin").display()))
            // Where this was not asked before.
            .env("XDG_CACHE_HOME", tool.path("cache"));
        let said = said(&command.output().expect("the binary runs"));
        assert_nothing_left(&tool);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.err
    };
    let first = runs();
    assert!(
        first.contains("KVM is present but cannot boot a guest"),
        "{first}"
    );
    let second = runs();
    // It is known now, and reported, but not tried again.
    assert!(second.contains("KVM does not work here"), "{second}");
    assert!(!second.contains("with KVM"), "{second}");
}
