//! The parts of `make mutants` that need no BPF: which mutants a source has, and that the list of those that survive
//! is of mutants that there are.

#[path = "../examples/mutants/known.rs"]
mod known;
#[path = "../examples/mutants/mutant.rs"]
mod mutant;
#[path = "../examples/mutants/syntax.rs"]
mod syntax;

use std::{collections::BTreeSet, fs};

/// Descriptions of each mutation of a source.
fn mutations(source: &str) -> Vec<String> {
    let one = |mutation: syntax::Mutation| {
        let new = match mutation.new.as_str() {
            "" => "-".to_owned(),
            new => new.to_owned(),
        };
        format!("{} => {new}", &source[mutation.at])
    };
    syntax::mutations(source).into_iter().map(one).collect()
}

#[test]
fn statements_values_conditions_bounds_and_constants_are_mutated() {
    let found = mutations(
        "static int f(struct a *a) /* 1 */\n{\n\t__u64 now = g(), *b = 0;\n\n\tif (!a || a->b < 7)\n\t\treturn c ? now : 2;\n\
         \tfor (int i = 0; i < 3; i++)\n\t\th(\"4;\", i); // 5\n\tb = a == b && b;\n}\n",
    );
    let expected = [
        "g() => {}",
        "0 => (0 + 1)",
        "!a => !(!a)",
        "a->b < 7 => !(a->b < 7)",
        "< => <=",
        "7 => (7 + 1)",
        "return c ? now : 2; => ;",
        "c => !(c)",
        "2 => (2 + 1)",
        "0 => (0 + 1)",
        "i < 3 => !(i < 3)",
        "< => <=",
        "3 => (3 + 1)",
        "i++ => -",
        "h(\"4;\", i); => ;",
        "b = a == b && b; => ;",
        "== => !=",
        "&& => ||",
    ];
    assert_eq!(found, expected);
}

#[test]
fn macros_and_maps_are_mutated_and_types_are_not() {
    let found = mutations(
        "#include \"a1.h\"\n#define SIZE 64 /* 3 */\n#define RUN(name, f) \\\n\tint name(void) \\\n\t{ \\\n\t\treturn f(2); \\\n\t}\n\
         struct a {\n\t__u32 b[5];\n};\nstruct {\n\t__uint(type, HASH);\n\t__type(key, __u32);\n} m SEC(\".maps\");\nRUN(a, 1)\n",
    );
    let expected = [
        "64 => (64 + 1)",
        "return f(2); => ;",
        "2 => (2 + 1)",
        "__uint(type, HASH); => -",
        "__type(key, __u32); => -",
        "1 => (1 + 1)",
    ];
    assert_eq!(found, expected);
}

#[test]
fn every_mutant_that_may_survive_is_there() {
    let mut names = BTreeSet::new();
    for file in fs::read_dir(mutant::SOURCES).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        let mutants = mutant::all_of(file.leak()).unwrap();
        for mutant in mutants {
            assert!(mutant.line > 0 && mutant.name.starts_with(mutant.source));
            assert!(!mutant.mutation.at.is_empty(), "{}", mutant.name);
            assert!(names.insert(mutant.name.clone()), "{}", mutant.name);
        }
    }
    let known = known::read();
    let reasons: Vec<known::Reason> = known.values().copied().collect();
    assert!(reasons.contains(&known::Reason::Equivalent) && reasons.contains(&known::Reason::Gap));
    for name in known.keys() {
        assert!(names.contains(*name), "no such mutant: {name}");
    }
}
