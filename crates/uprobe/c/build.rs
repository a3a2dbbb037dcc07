//! Names the shared library, as programs that are linked with it look for it: by the part of the version that changes where
//! the interface does.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let [major, minor] = ["MAJOR", "MINOR"].map(|part| {
        let name = format!("CARGO_PKG_VERSION_{part}");
        std::env::var(name).expect("cargo sets it")
    });
    let interface = match &*major {
        "0" => format!("0.{minor}"),
        _ => major,
    };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbpfcost_uprobe.so.{interface}");
}
