use std::fs;

use super::*;
use crate::{
    builtin::{ladder::KnownAnswers, workload::Workload},
    cli::exit::{Exit, exit_of, sentence},
};
use bpfcost_workload::Definition;

/// Reason why a machine with these files can't run an experiment.
fn refused_for(experiment: &dyn Experiment, files: &[(&str, &str)]) -> String {
    let root = tempfile::TempDir::new().expect("a folder");
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    let error = able(&Host::at(root.path()), experiment).expect_err("it can't");
    assert_eq!(exit_of(&error), Exit::Lacking);
    sentence(&error)
}

/// The same of an experiment that only loads programs.
fn refused(files: &[(&str, &str)]) -> String {
    refused_for(&KnownAnswers, files)
}

const ROOT: (&str, &str) = ("proc/self/status", "CapEff:\t000001ffffffffff\n");
const NEW: (&str, &str) = ("proc/sys/kernel/osrelease", "6.12.0\n");
const OLD: (&str, &str) = ("proc/sys/kernel/osrelease", "5.10.0-44-amd64\n");
const BTF: (&str, &str) = ("sys/kernel/btf/vmlinux", "btf");

#[test]
fn machines_that_lack_something_are_refused_before_anything_is_loaded() {
    let error = refused(&[OLD, BTF]);
    assert!(
        error.contains("CAP_BPF") && error.contains("setcap"),
        "{error}"
    );
    let error = refused(&[ROOT, NEW]);
    assert!(error.contains("CONFIG_DEBUG_INFO_BTF"), "{error}");
    let error = refused(&[ROOT, OLD, BTF]);
    assert!(error.contains("5.10.0-44-amd64 is too old"), "{error}");
    assert!(error.contains("bpfcost check"), "{error}");
}

#[test]
fn a_probe_whose_runs_the_kernel_counts_needs_more() {
    let workload = |probe: &str| {
        let text = format!(
            "name = 'x'\nabout = ''\noperation = 'run'\n[[client]]\ncommand = ['true']\noutput = 'text'\n\
             [[variant]]\nname = 'probe'\nabout = ''\nprobe = '{probe}'"
        );
        Workload::new(Definition::parse(&text).expect("a definition"))
    };
    // All that setcap's line for other experiments grants.
    let granted = ("proc/self/status", "CapEff:\t000000c000001000\n");
    let error = refused_for(&workload("x.bpf.o"), &[granted, NEW, BTF]);
    assert!(error.contains("lacks CAP_SYS_ADMIN"), "{error}");
    assert!(error.contains(",cap_sys_admin+ep"), "{error}");
    let error = refused_for(&workload("builtin:nothing"), &[granted, OLD, BTF]);
    assert!(error.contains("is too old"), "{error}");
}
