//! Definitions of the user's own: listed and refused as the built-in ones are.

use crate::{
    definition::{CLIENT, with},
    tool::Tool,
};

#[test]
fn one_of_the_users_own_is_listed() {
    let tool = with(CLIENT, "", "");
    let listed = tool.answers("list ./x.toml");
    assert!(listed.contains("client: a client alone"), "{listed}");
    for words in ["nothing", "bpfcost run ./x.toml --case"] {
        assert!(listed.contains(words), "{words}: {listed}");
    }
    let planned = tool.answers("run ./x.toml --dry-run");
    assert!(planned.contains("2 cases"), "{planned}");
}

#[test]
fn what_is_wrong_is_named_with_file_and_line() {
    for (from, to, words) in [
        (
            "command",
            "comand",
            [
                "x.toml:8: unknown key `comand` in [[client]]",
                "did you mean command?",
            ],
        ),
        (
            "did 1000",
            "did {sice}",
            ["x.toml:8: unknown placeholder {sice}", "{port}"],
        ),
        ("[[variant]]", "[[variant", ["x.toml:12: ", "error"]),
    ] {
        let tool = with(CLIENT, from, to);
        tool.refuses("run x.toml", 2, &words);
        tool.refuses("list x.toml", 2, &words);
    }
    let tool = Tool::new();
    tool.refuses("run nowhere.toml", 2, &["cannot read nowhere.toml"]);
}
