//! Compiles the sources of this folder, and runs programs of them.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use bpfcost_bpf::{
    LIBBPF_HEADERS, current_cpu,
    program::{Body, Change, NativeProgram, ObjectFile, Oracle, Ran, Restore, Settings, Spliced},
    timing::Request,
};
use bpfcost_compile::{clang, compile};
use tempfile::TempDir;

/// An IPv4 packet of 100 bytes after its header.
pub(crate) fn packet() -> Vec<u8> {
    let header = [&[0x02; 12][..], &[0x08, 0x00], &[0x45, 0, 0, 100]].concat();
    let mut packet = header;
    packet.resize(114, 0);
    packet[22..24].copy_from_slice(&[64, 17]);
    for (number, byte) in (0..).zip(&mut packet[34..]) {
        *byte = number;
    }
    packet
}

/// A source of this folder, compiled once: as people do with `-g`, and with libbpf's headers.
pub(crate) fn object(source: &str) -> ObjectFile {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| TempDir::new().expect("a folder"));
    let object = tempfile::Builder::new()
        .suffix(".bpf.o")
        .tempfile_in(folder.path())
        .expect("a file");
    let headers = Path::new(LIBBPF_HEADERS);
    compile(&path(source), object.path(), headers, &[]).expect("it compiles");
    ObjectFile::read(object.path()).expect("it can be read")
}

/// The same without BTF, and without libbpf's headers.
pub(crate) fn plain_object(source: &str) -> ObjectFile {
    let object = tempfile::NamedTempFile::new().expect("a file");
    let compiler = Command::new(clang())
        .args(["-O2", "-target", "bpf", "-c", "-o"])
        .args([object.path(), &path(source)])
        .status();
    assert!(compiler.expect("clang runs").success());
    ObjectFile::read(object.path()).expect("it can be read")
}

fn path(source: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/program")
        .join(source)
}

/// A program, what it does alone, and what has to be undone.
pub(crate) struct Prepared {
    pub(crate) native: NativeProgram,
    pub(crate) oracle: Oracle,
    pub(crate) once: Ran,
    pub(crate) change: Change,
    pub(crate) packet: Vec<u8>,
}

pub(crate) fn prepare(object: &ObjectFile, program: &str) -> Prepared {
    prepare_on(object, program, &packet())
}

pub(crate) fn prepare_on(object: &ObjectFile, program: &str, packet: &[u8]) -> Prepared {
    prepare_with(object, program, packet, &Settings::default())
}

pub(crate) fn prepare_with(
    object: &ObjectFile,
    program: &str,
    packet: &[u8],
    settings: &Settings,
) -> Prepared {
    let native =
        NativeProgram::load(object, program, settings).unwrap_or_else(|error| panic!("{error}"));
    let cpu = current_cpu();
    let oracle = native.oracle(cpu, packet).expect("it runs");
    let form = object.program(program).expect("it is there").form;
    let (once, change) = native
        .change(form, cpu, packet, &oracle)
        .unwrap_or_else(|error| panic!("{error}"));
    Prepared {
        native,
        oracle,
        once,
        change,
        packet: packet.to_vec(),
    }
}

impl Prepared {
    /// A batch that undoes so much.
    pub(crate) fn batch(&self, ops: u64, body: Body, restore: Restore) -> Ran {
        self.batch_with(ops, body, restore, 1)
    }

    /// The same, each run undone so often.
    pub(crate) fn batch_with(&self, ops: u64, body: Body, restore: Restore, resets: u64) -> Ran {
        let change = Change {
            restore,
            ..self.change
        };
        let loaded = Spliced::load(&self.native, body, &change);
        let mut spliced = loaded.unwrap_or_else(|error| panic!("{error}"));
        let request = Request {
            ops,
            resets,
            cpus: &[current_cpu()],
            after_tick: false,
        };
        let code = self.oracle.code;
        let ran = spliced
            .batch(&request, &self.packet, code)
            .expect("it runs");
        assert_eq!((ran.seen.ops, ran.runs), (ops, ops));
        assert!(ran.seen.fits_outside(), "{:?}", ran.seen);
        ran
    }

    /// Returns true if the last run left what each should.
    pub(crate) fn is_right(&self, ran: &Ran) -> bool {
        ran.wrong == 0
            && ran.fallen == 0
            && ran.seen.output == self.oracle.output
            && ran.changes == self.once.changes
    }
}
