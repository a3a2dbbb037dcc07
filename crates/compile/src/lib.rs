//! Compiles BPF C by clang, for build scripts and tests.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use object::{
    build::elf::{Builder, SectionData},
    elf::SHT_STRTAB,
};

/// The first clang that knows `may_goto`, as Debian 12 names it.
const CLANG: &str = "clang-19";

/// The compiler that the variable `CLANG` names, else `clang-19`.
pub fn clang() -> OsString {
    env::var_os("CLANG").unwrap_or_else(|| CLANG.into())
}

/// The folder of libbpf's headers, in the build script of a crate that depends on libbpf-sys.
///
/// # Panics
/// In a build script of another crate.
pub fn headers() -> PathBuf {
    let folder = env::var_os("DEP_BPF_INCLUDE");
    folder
        .expect("the crate depends on libbpf-sys, which tells where its headers are")
        .into()
}

/// Compiles a source to an object with types (BTF), with libbpf's headers and these flags. The object does not depend on
/// where the source and the headers lie: it has no debug information but types.
///
/// # Errors
/// Clang's own words, or the reason that it can't be started or its object can't be read.
pub fn compile(source: &Path, object: &Path, headers: &Path, flags: &[&str]) -> Result<(), String> {
    let clang = clang();
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_else(|_| env::consts::ARCH.to_owned());
    let target = match arch.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => other,
    };
    let folder = env::current_dir().map_err(|error| error.to_string())?;
    let prefix = |from: &Path, to: &str| format!("-ffile-prefix-map={}={to}", from.display());
    let output = Command::new(&clang)
        .args(["-g", "-O2", "-target", "bpf", "-fno-stack-protector"])
        // A table for linkers, of a kind that not everything knows.
        .arg("-fno-addrsig")
        .arg(format!("-D__TARGET_ARCH_{target}"))
        .arg(prefix(&folder, "."))
        .arg(prefix(headers, "libbpf"))
        .args(flags)
        .arg("-I")
        .arg(headers)
        // Debian keeps `asm/` apart by architecture, which clang does not look into when it compiles for BPF.
        .arg(format!("-I/usr/include/{arch}-linux-gnu"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .output()
        .map_err(|error| {
            format!(
                "{} does not start ({error}); install it with: scripts/setup.sh",
                clang.display()
            )
        })?;
    if !output.status.success() {
        return Err(format!(
            "{}: {}",
            source.display(),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    strip(object).map_err(|error| format!("{}: {error}", object.display()))
}

/// Takes DWARF out of an object. It names folders of this machine, and libbpf does not read it.
fn strip(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let bytes = fs::read(path)?;
    let mut builder = Builder::read(bytes.as_slice())?;
    for section in &mut builder.sections {
        let name: &[u8] = &section.name;
        section.delete |= name.starts_with(b".debug") || name.starts_with(b".rel.debug");
    }
    builder.delete_orphans();
    // Clang has one table of strings for names of sections and of symbols; a builder wants two.
    let names = builder.sections.add();
    names.name = ".shstrtab".into();
    names.sh_type = SHT_STRTAB;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    builder.write(&mut stripped)?;
    Ok(fs::write(path, stripped)?)
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSection as _};

    use super::*;

    const SOURCE: &str = "int answer = 42;\n\
        __attribute__((section(\"xdp\"), used)) int pass(void *context) { return answer; }\n";

    /// Compiles this in a folder of its own, and returns the object.
    fn compiled(source: &str) -> Result<Vec<u8>, String> {
        let folder = tempfile::TempDir::new().expect("a folder");
        let [from, to] = ["x.bpf.c", "x.o"].map(|name| folder.path().join(name));
        fs::write(&from, source).expect("a file");
        let prefix = format!("-ffile-prefix-map={}=.", folder.path().display());
        compile(&from, &to, folder.path(), &["-mcpu=v3", &prefix])?;
        Ok(fs::read(to).expect("the object"))
    }

    #[test]
    fn an_object_has_types_and_no_dwarf() {
        let bytes = compiled(SOURCE).expect("it compiles");
        let file = object::File::parse(bytes.as_slice()).expect("an object");
        let names: Vec<_> = file
            .sections()
            .map(|one| one.name().expect("a name").to_owned())
            .collect();
        for name in ["xdp", ".relxdp", ".BTF", ".BTF.ext", ".data"] {
            assert!(names.iter().any(|one| one == name), "{names:?}");
        }
        assert!(
            !names.iter().any(|name| name.contains("debug")),
            "{names:?}"
        );
        assert!(file.symbols().count() > 0);
    }

    #[test]
    fn folders_make_no_difference() {
        assert_eq!(compiled(SOURCE), compiled(SOURCE));
    }

    #[test]
    fn what_does_not_compile_says_so() {
        let error = compiled("int f(void) { return missing; }").expect_err("it does not compile");
        assert!(
            error.contains("x.bpf.c") && error.contains("missing"),
            "{error}"
        );
    }
}
