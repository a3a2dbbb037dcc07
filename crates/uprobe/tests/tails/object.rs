//! Ordinary BPF programs there.

use super::Tails;
use crate::{
    compile,
    held::{hold, release},
};
use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Place, Probes},
};

/// The global variables: runs, the sum of the results, the function, stacks that were walked.
fn variables(probes: &Probes) -> [u64; 4] {
    let values = probes.map(".bss").unwrap().get(&[0; 4]);
    let values = values.unwrap().unwrap();
    [0, 1, 2, 3].map(|index| u64::from_ne_bytes(values[8 * index..][..8].try_into().unwrap()))
}

#[test]
fn programs_have_results_and_stacks() {
    let mut tails = Tails::start(&["-fno-builtin", "-fno-omit-frame-pointer"]);
    let object = compile::bpf("tests/tails/tails.bpf.c");
    let object = LoadedObject::from_bytes("tails", &object, &Choice::default()).unwrap();
    let mut probes = Probes::new(object).unwrap();
    hold(&mut tails, 2);
    release(&mut tails, 2);
    let pid = tails.process.pid();
    let mut before = [0; 4];
    for name in ["calloc", "realloc", "memalign", "valloc", "pvalloc"] {
        let function = tails.library(name);
        let place = Place {
            program: "on_return",
            function: &function,
            at: At::Return,
            cookie: 0,
        };
        let attached = probes.attach(pid, &[place]).unwrap();
        let (calls, results) = tails.call(&format!("alloc {name} 2 1000"));
        let hits = probes.detach(attached).unwrap().returns;
        assert_eq!((hits.hits, hits.missed), (calls, 0), "{name}");
        let after = variables(&probes);
        assert_eq!(after[0] - before[0], calls, "{name}");
        assert_eq!(after[1].wrapping_sub(before[1]), results, "{name}");
        assert_eq!(after[2], function.address, "{name}");
        assert_eq!(after[3] - before[3], calls, "{name}");
        before = after;
    }
    // A stack that has a stub in it.
    let both = ["leaves", "callee"].map(|name| tails.function(name));
    let place = |program, function, at| Place {
        program,
        function,
        at,
        cookie: 0,
    };
    let places = [
        place("on_return", &both[0], At::Return),
        place("on_walk", &both[1], At::Entry),
    ];
    let attached = probes.attach(pid, &places).unwrap();
    let (calls, _) = tails.call("leaves 1000");
    let counts = probes.detach(attached).unwrap();
    assert_eq!((counts.returns.hits, counts.returns.missed), (calls, 0));
    // A third of the calls ends without the jump.
    assert_eq!(
        variables(&probes)[3] - before[3],
        calls + calls - calls.div_ceil(3)
    );
}
