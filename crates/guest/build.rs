//! Compiles the tracer, a plugin of QEMU, once for each version of the interface that QEMU asks for.

use std::{env, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=plugin");
    let source = "plugin/tracer.c";
    let out = env::var("OUT_DIR").expect("cargo sets it");
    for version in [1, 2] {
        let compiler = cc::Build::new()
            .opt_level(2)
            .debug(false)
            .pic(true)
            .get_compiler();
        let mut command = compiler.to_command();
        command
            .args([
                "-shared",
                "-nostdlib",
                "-ffreestanding",
                "-fvisibility=hidden",
                "-Werror",
                "-s",
            ])
            .arg(format!("-DPLUGIN_VERSION={version}"))
            .args([
                "-o".as_ref(),
                Path::new(&out)
                    .join(format!("tracer{version}.so"))
                    .as_os_str(),
            ])
            .arg(source);
        let status = command.status().expect("the C compiler starts");
        assert!(status.success(), "{source} is not compiled: {status}");
    }
}
