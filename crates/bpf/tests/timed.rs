//! Objects by name: what one has is found, and what it lacks is named.

mod require;

use bpfcost_bpf::{
    Error,
    timed::{MapOverrides, OpenObject},
    timing::{Loop, Request},
};

const ONE: Request<'_> = Request {
    ops: 3,
    resets: 1,
    cpus: &[0],
    after_tick: false,
};

#[test]
fn variables_have_the_values_that_the_program_left() {
    if !require::host() {
        return;
    }
    let mut open = OpenObject::open("ladder", Loop::probe().expect("probe")).expect("open");
    open.time("ladder_10").expect("a program of it");
    open.set("product_so_far", 7).expect("a variable of it");
    let mut ladder = open.load().expect("load");
    assert_eq!(ladder.variable("product_so_far").expect("read"), 7);

    let seen = ladder.batch("ladder_10", &ONE, &[vec![0; 64]]);
    let [seen] = &seen.expect("run")[..] else {
        panic!("one CPU, one sample");
    };
    assert_eq!(seen.ops, 3);
    let product = 7u64.wrapping_mul(5u64.wrapping_pow(30));
    assert_eq!(ladder.variable("product_so_far").expect("read"), product);
    assert_eq!(
        ladder
            .members("timing_samples", 0, ["end_ns"])
            .expect("read"),
        [seen.end_ns]
    );

    ladder.set_variable("product_so_far", 9).expect("write");
    ladder
        .batch("ladder_10", &ONE, &[vec![0; 64]])
        .expect("run");
    let product = 9u64.wrapping_mul(5u64.wrapping_pow(30));
    assert_eq!(ladder.variable("product_so_far").expect("read"), product);

    let other = ladder.batch("ladder_1", &ONE, &[vec![0; 64]]);
    assert!(matches!(other, Err(Error::NotLoaded(_))), "{other:?}");
}

/// Opening needs no privilege, so that this runs everywhere.
#[test]
fn what_an_object_lacks_is_named() {
    let says = |error: Error| error.to_string();
    let none = OpenObject::open("ladders", Loop::BpfLoop).expect_err("no such object");
    assert_eq!(says(none), "this build has no object ladders");
    let mut open = OpenObject::open("ladder", Loop::BpfLoop).expect("open");
    let lacks = [
        says(open.time("ladder_2").expect_err("no such program")),
        says(
            open.map("rungs", MapOverrides::default())
                .expect_err("no such map"),
        ),
        says(open.set("product", 1).expect_err("no such variable")),
    ];
    assert_eq!(
        lacks,
        [
            "ladder has no program ladder_2__bpf_loop",
            "ladder has no map rungs",
            "ladder has no variable product",
        ]
    );
}
