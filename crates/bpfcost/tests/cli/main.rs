//! The program as its user meets it: the binary itself, what it says, how it ends, and what it
//! leaves behind. What needs BPF goes through `require`.

#[path = "../common/browser.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "a part of it is used"
)]
mod browser;
#[path = "../guest/require.rs"]
#[allow(dead_code, unused_imports, reason = "a part of it is used")]
mod guests;
#[path = "../overhead/object.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod object;
#[path = "../common/own_cgroups.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod own_cgroups;
#[path = "../common/patched.rs"]
mod patched;
#[path = "../../../bpf/tests/require/mod.rs"]
mod require;
#[path = "../common/sample_parts.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "a part of it is used"
)]
mod sample_parts;
#[path = "../common/sample_record.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "a part of it is used"
)]
mod sample_record;
#[path = "../common/synthetic.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "a part of it is used"
)]
mod synthetic;

mod answers;
mod attached;
mod baselines;
mod conditions;
mod crates;
mod disk;
mod docs;
mod endurance;
mod finished;
mod help;
mod install;
mod interrupts;
mod journals;
mod kernel;
mod kills;
mod load;
mod mistakes;
mod pipes;
mod pools;
mod privilege;
mod program;
mod records;
mod resumes;
mod running;
mod self_test;
mod sniffer;
mod stack;
mod terminal;
mod tool;
mod top;
mod workflows;
mod wrappers;

// As `guests` calls it.
use require as shared;
