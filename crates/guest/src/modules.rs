//! Modules that a guest loads as it boots: few, always the same, those that they need first. Nothing loads others on
//! demand where a guest has no files of the host.

use std::{
    collections::HashMap,
    ffi::CStr,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use lzma_rust2::XzReader;
use object::{Object as _, ObjectSection as _};
use ruzstd::decoding::StreamingDecoder;

use super::GuestError;

/// Modules that a guest needs; a kernel may have each built in, or not at all.
const WANTED: [&str; 6] = [
    // Devices on the PCI bus, 9p over them, and the layers over the host's files.
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "overlay",
    // Networks: the card of a guest that is reached from outside, and pairs of cards.
    "virtio_net",
    "veth",
];

/// The module of a disk without memory behind it: what is read is of no matter, and each request ends at once. Only guests
/// whose instructions are traced have it: programs may be for requests of disks.
pub(crate) const NULL_BLK: &str = "null_blk";

/// Parameters of that module: one disk with a scheduler, whose requests end where they are issued, without an interrupt.
pub(crate) const NULL_BLK_PARAMETERS: &CStr = c"nr_devices=1 gb=1 submit_queues=1 irqmode=0";

/// No module is as large, unpacked.
const MAX_BYTES: u64 = 64 << 20;

/// A module, unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// Name, with `_` for `-`.
    pub(crate) name: String,
    /// The ELF file.
    pub(crate) bytes: Vec<u8>,
}

/// Reads the modules that a guest needs, in the order to load them, from a folder like `/lib/modules/RELEASE`. What is not there is
/// in the kernel's image, or is missed when it is used.
pub(crate) fn wanted(folder: &Path, traced: bool) -> Result<Vec<Module>, GuestError> {
    let mut files = HashMap::new();
    index(folder, &mut files).map_err(|error| unusable(folder, &error.to_string()))?;
    let mut modules = Vec::new();
    let disk = traced.then_some(NULL_BLK);
    for name in WANTED.into_iter().chain(disk) {
        add(name, &mut files, &mut modules)?;
    }
    Ok(modules)
}

/// The modules below a folder, by name. Links that lead nowhere are left out, like `build` and `source`.
fn index(folder: &Path, files: &mut HashMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            index(&path, files)?;
        } else if let Some((stem, _)) = entry.file_name().to_string_lossy().split_once(".ko")
            && path.is_file()
        {
            files.insert(stem.replace('-', "_"), path);
        }
    }
    Ok(())
}

/// Adds a module behind those that it needs.
fn add(
    name: &str,
    files: &mut HashMap<String, PathBuf>,
    modules: &mut Vec<Module>,
) -> Result<(), GuestError> {
    // Taken out, so that two that need each other end.
    let Some(path) = files.remove(name) else {
        return Ok(());
    };
    let path = &path;
    let bytes = unpacked(path).map_err(|error| unusable(path, &error.to_string()))?;
    let needs = needs(&bytes).ok_or_else(|| unusable(path, "it is no module"))?;
    for needed in &needs {
        add(needed, files, modules)?;
    }
    modules.push(Module {
        name: name.to_owned(),
        bytes,
    });
    Ok(())
}

/// Names of the modules that one needs, by its own section `.modinfo`; `None` for a file that is no module.
fn needs(bytes: &[u8]) -> Option<Vec<String>> {
    let file = object::File::parse(bytes).ok()?;
    let info = file.section_by_name(".modinfo")?.data().ok()?;
    let mut words = info.split(|byte| *byte == 0);
    let needs = words.find_map(|word| word.strip_prefix(b"depends="))?;
    let needs = String::from_utf8_lossy(needs);
    let names = needs.split(',').filter(|name| !name.is_empty());
    Some(names.map(|name| name.replace('-', "_")).collect())
}

/// Names of the modules that the module in a file needs, with `_` for `-`; `None` for a file that is no module.
pub fn module_needs(file: &Path) -> Option<Vec<String>> {
    needs(&unpacked(file).ok()?)
}

/// The ELF file in one that may be packed, as its name says.
fn unpacked(path: &Path) -> io::Result<Vec<u8>> {
    let packed = fs::read(path)?;
    let mut bytes = Vec::new();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => return Ok(packed),
        Some("xz") => XzReader::new(packed.as_slice(), false)
            .take(MAX_BYTES)
            .read_to_end(&mut bytes)?,
        Some("zst") => StreamingDecoder::new(packed.as_slice())
            .map_err(io::Error::other)?
            .take(MAX_BYTES)
            .read_to_end(&mut bytes)?,
        other => {
            let how = other.unwrap_or_default();
            return Err(io::Error::other(format!(
                "it is packed in another way than xz or zst: {how}"
            )));
        }
    };
    Ok(bytes)
}

fn unusable(path: &Path, why: &str) -> GuestError {
    GuestError::Lacking(format!(
        "{} cannot be used for a guest: {why}\n  Check the kernel: bpfcost kernel list",
        path.display()
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write as _;

    use lzma_rust2::{XzOptions, XzWriter};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    /// The smallest ELF file with a section `.modinfo`.
    fn module(info: &str) -> Vec<u8> {
        const NAMES: &[u8] = b"\0.modinfo\0.shstrtab\0";
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(64, 0);
        file.extend(NAMES);
        let info_at = file.len();
        file.extend(info.as_bytes());
        file.resize(file.len().next_multiple_of(8), 0);
        let sections_at = file.len();
        let mut section = |name: u32, kind: u32, at: usize, length: usize| {
            let mut header = [name.to_le_bytes(), kind.to_le_bytes()].concat();
            for word in [0, 0, at as u64, length as u64] {
                header.extend(word.to_le_bytes());
            }
            header.resize(64, 0);
            file.extend(header);
        };
        section(0, 0, 0, 0);
        section(1, 1, info_at, info.len());
        section(10, 3, 64, NAMES.len());
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(16, &1u16.to_le_bytes()); // e_type: relocatable
        put(18, &62u16.to_le_bytes()); // e_machine: x86-64
        put(20, &1u32.to_le_bytes()); // e_version
        put(40, &(sections_at as u64).to_le_bytes()); // e_shoff
        put(52, &64u16.to_le_bytes()); // e_ehsize
        put(58, &64u16.to_le_bytes()); // e_shentsize
        put(60, &3u16.to_le_bytes()); // e_shnum
        put(62, &2u16.to_le_bytes()); // e_shstrndx
        file
    }

    fn info(needs: &str) -> Vec<u8> {
        module(&format!("license=GPL\0depends={needs}\0name=x\0"))
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).expect("a writer");
        writer.write_all(bytes).expect("all of it");
        writer.finish().expect("its end")
    }

    fn zst(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    /// A folder of modules, each packed in another way, with a link that leads nowhere.
    pub(crate) fn tree(folder: &Path) -> PathBuf {
        let folder = folder.join("6.12.1");
        let nets = folder.join("kernel/net/9p");
        fs::create_dir_all(&nets).expect("folders");
        let put = |name: &str, bytes: &[u8]| fs::write(nets.join(name), bytes).expect("a file");
        put("9pnet.ko.xz", &xz(&info("")));
        put("9pnet_virtio.ko", &info("9pnet"));
        put("9p.ko.zst", &zst(&info("netfs,9pnet")));
        put("netfs.ko", &info("in-the-image"));
        put("unwanted.ko", b"nonsense");
        put("modules.dep", b"");
        std::os::unix::fs::symlink("/no/such/place", folder.join("build")).expect("a link");
        folder
    }

    fn names(folder: &Path) -> Result<Vec<String>, String> {
        let modules = wanted(folder, true).map_err(|error| error.to_string())?;
        Ok(modules.into_iter().map(|module| module.name).collect())
    }

    #[test]
    fn modules_come_behind_those_that_they_need() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let tree = tree(folder.path());
        let found = wanted(&tree, true).expect("modules");
        let names: Vec<_> = found.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["9pnet", "9pnet_virtio", "netfs", "9p"]);
        assert!(
            found
                .iter()
                .all(|module| module.bytes.starts_with(b"\x7fELF"))
        );
    }

    #[test]
    fn a_kernel_that_needs_no_modules_is_no_error() {
        let folder = tempfile::TempDir::new().expect("a folder");
        assert_eq!(names(folder.path()), Ok(Vec::new()));
    }

    #[test]
    fn modules_that_need_each_other_end() {
        let folder = tempfile::TempDir::new().expect("a folder");
        fs::write(folder.path().join("9p.ko"), info("veth")).expect("a file");
        fs::write(folder.path().join("veth.ko"), info("9p")).expect("a file");
        let both = ["veth", "9p"].map(str::to_owned);
        assert_eq!(names(folder.path()), Ok(both.to_vec()));
    }

    #[test]
    fn what_is_no_module_is_named() {
        let folder = tempfile::TempDir::new().expect("a folder");
        for (name, bytes, why) in [
            ("9p.ko", b"nonsense".to_vec(), "it is no module"),
            ("9p.ko.gz", info(""), "another way than xz or zst: gz"),
            ("9p.ko.xz", b"nonsense".to_vec(), "9p.ko.xz cannot be used"),
            (
                "9p.ko.xz",
                xz(&info(""))[..40].to_vec(),
                "9p.ko.xz cannot be used",
            ),
            (
                "9p.ko.zst",
                zst(&info(""))[..10].to_vec(),
                "9p.ko.zst cannot be used",
            ),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, bytes).expect("a file");
            let error = names(folder.path()).expect_err(name);
            assert!(
                error.contains(why) && error.contains("kernel list"),
                "{error}"
            );
            fs::remove_file(path).expect("it was there");
        }
    }
}
