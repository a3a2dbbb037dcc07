//! What is said of definitions that are wrong, and where.

use super::*;

const WHOLE: &str = r#"name = "mine"
about = "a question"
operation = "request"

[server]
command = ["server", "{port}"]

[[factor]]
name = "size"
about = "bytes"
values = ["1"]

[[client]]
command = ["client", "{size}"]
output = "text"
metrics = { ops = "(\\d+)" }

[[variant]]
name = "probe"
about = "a probe"
probe = "builtin:nothing"
only = { size = ["1"] }
"#;

/// What is said of the text where `from` became `to`.
#[track_caller]
fn refused(from: &str, to: &str) -> String {
    assert!(WHOLE.contains(from), "{from}");
    let text = WHOLE.replacen(from, to, 1);
    Definition::parse(&text)
        .expect_err("it is wrong")
        .to_string()
}

#[test]
fn times_that_are_no_times_are_refused() {
    for (key, value) in [("window-ms", "0"), ("window-ms", "9223372036854775807")] {
        let error = refused("\n[server]", &format!("{key} = {value}\n\n[server]"));
        assert!(error.starts_with("line 4: window-ms = "), "{error}");
        assert!(error.ends_with("is not between 1 and 60000"), "{error}");
    }
    for seconds in ["-1.0", "nan", "inf", "1e300"] {
        let of_client = format!("within-s = {seconds}\noutput =");
        let of_server = format!("ready = {{ tcp = \"1\", within-s = {seconds} }}\n\n[[factor]]");
        for (from, to, line) in [("output =", of_client, 15), ("\n[[factor]]", of_server, 7)] {
            let error = refused(from, &to);
            let begin = format!("line {line}: within-s = ");
            assert!(error.starts_with(&begin), "{error}");
            assert!(error.ends_with("is not between 0 and 86400"), "{error}");
        }
    }
}

#[test]
fn what_is_right_is_read() {
    let definition = Definition::parse(WHOLE).expect("it is right");
    let names: Vec<&str> = definition
        .variants
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, [OFF, "probe"]);
}

#[test]
fn a_mistyped_key_is_named_with_its_line() {
    let said = refused("command = [\"server\"", "comand = [\"server\"");
    assert!(
        said.starts_with("line 6: unknown key `comand` in [server] (did you mean command?)"),
        "{said}"
    );
    let said = refused("output = \"text\"", "output = \"texts\"");
    assert!(said.starts_with("line 15: "), "{said}");
    assert!(said.contains("texts"), "{said}");
    let said = refused("operation = \"request\"\n", "");
    assert!(said.contains("the key `operation` is missing"), "{said}");
    let said = refused("command = [\"client\", \"{size}\"]\n", "");
    assert!(
        said.starts_with("line 13: the key `command` is missing in [[client]]"),
        "{said}"
    );
    let said = refused("[server]", "[server");
    assert!(said.starts_with("line 5: "), "{said}");
}

#[test]
fn what_no_type_says_is_checked() {
    for (from, to, line, what) in [
        (
            "operation = \"request\"",
            "operation = \"second\"",
            3,
            "operation = \"second\" is only for clients that report no operation count",
        ),
        (
            "operation = \"request\"\n",
            "operation = \"request\"\nrounds = 1\n",
            4,
            "rounds = 1 is not between 3 and 19",
        ),
        (
            "operation = \"request\"\n",
            "operation = \"request\"\nrounds = 4\n",
            4,
            "rounds = 4 is even: a server's value is the median of its windows, and slow windows move the median \
             of an even number. Write 3 or 5",
        ),
        (
            "only = { size",
            "only = { sise",
            22,
            "`only` of variant probe names sise, which is not a factor (did you mean size?)",
        ),
        (
            "output = \"text\"\n",
            "output = \"text\"\nonly = { sise = [] }\n",
            16,
            "`only` of client closed names sise, which is not a factor (did you mean size?)",
        ),
        (
            "{size}",
            "{sise}",
            14,
            "unknown placeholder {sise} (did you mean size?)",
        ),
        (
            "name = \"probe\"",
            "name = \"off\"",
            19,
            "the variant off always exists",
        ),
        (
            "(\\\\d+)",
            "(",
            16,
            "the metric ops is not a regular expression",
        ),
    ] {
        let said = refused(from, to);
        assert!(said.starts_with(&format!("line {line}: {what}")), "{said}");
    }
    let variant = &WHOLE[WHOLE.find("[[variant]]").expect("it is there")..];
    let said = refused(variant, &format!("{variant}{variant}"));
    assert!(
        said.starts_with("line 24: the variant probe is defined twice"),
        "{said}"
    );
    let said = refused(variant, "");
    assert!(said.contains("the key `variant` is missing"), "{said}");
    let said = refused("name = \"mine\"", "name = \"my/own\"");
    assert!(said.starts_with("line 1: the name my/own"), "{said}");
}

/// The line is that of the key, wherever the same text stands before it.
#[test]
fn lines_are_those_of_keys() {
    let prose = "about = \"a question of rounds, and of {sise}; metrics: ops = what client does\"";
    let wordy = WHOLE.replacen("about = \"a question\"", prose, 1);
    for (from, to, line) in [
        ("operation =", "rounds = 1\noperation =", 3),
        (
            "[\"client\", \"{size}\"]",
            "[\n \"client\",\n \"{sise}\"\n]",
            16,
        ),
        ("(\\\\d+)", "(", 16),
        ("only = { size", "only = { ops", 22),
    ] {
        assert!(wordy.contains(from), "{from}");
        let wrong = Definition::parse(&wordy.replacen(from, to, 1)).expect_err(to);
        assert_eq!(wrong.line, line, "{to}: {wrong}");
    }
}

#[test]
fn a_mistyped_key_behind_an_array_is_in_its_own_table() {
    let prepare =
        "operation = \"request\"\nprepare = [\n[\"true\"],\n[\"true\", \"x y\"]\n]\nround = 2\n";
    let said = refused("operation = \"request\"\n", prepare);
    assert!(
        said.starts_with("line 8: unknown key `round` (did you mean rounds?)"),
        "{said}"
    );
}

#[test]
fn a_probe_that_is_none_is_named_with_its_line() {
    for (probe, what) in [
        (
            "builtin:nothin",
            "there is no built-in probe nothin (did you mean nothing?)",
        ),
        (
            "builtin:syscount:kernl",
            "builtin:syscount has no filter kernl",
        ),
        ("process:", "there is no command after process:"),
    ] {
        let said = refused("builtin:nothing", probe);
        assert!(said.starts_with("line 21: "), "{said}");
        assert!(said.contains("`probe`") && said.contains(what), "{said}");
    }
}

#[test]
fn a_server_of_a_variants_own_is_checked() {
    let own = |server: &str| format!("probe = \"builtin:nothing\"\nserver = {server}");
    let with = |from: &str, to: &str, server: &str| {
        let text = WHOLE.replacen("probe = \"builtin:nothing\"", &own(server), 1);
        Definition::parse(&text.replacen(from, to, 1)).map_err(|error| error.to_string())
    };
    let definition = with("", "", "{ arguments = [\"-x\"], env = { A = \"{size}\" } }");
    let definition = definition.expect("it is right");
    let server = definition.with_server(definition.variants[1].server.as_ref());
    let server = server.server.expect("there is one");
    assert_eq!(server.command, ["server", "{port}", "-x"]);
    assert_eq!(server.env["A"], "{size}");
    for (from, to, server, what) in [
        (
            "",
            "",
            "{ argument = [] }",
            "line 22: unknown key `argument` in [[variant]]",
        ),
        (
            "",
            "",
            "{}",
            "line 22: `server` of variant probe: it does not differ",
        ),
        (
            "",
            "",
            "{ arguments = [\"{sise}\"] }",
            "line 22: unknown placeholder {sise}",
        ),
        (
            "command = [\"server\", \"{port}\"]",
            "watch = { pids = [1] }",
            "{ arguments = [\"-x\"] }",
            "line 22: `server` of variant probe: there is no server to start",
        ),
        (
            "operation =",
            "network = \"forwarded\"\noperation =",
            "{ arguments = [\"-x\"] }",
            "line 23: `server` of variant probe: the network forwarded reaches only one server",
        ),
    ] {
        let said = with(from, to, server).expect_err(what);
        assert!(said.starts_with(what), "{said}");
    }
}

/// Records and journals of before hold probes as texts, and none as an empty one.
#[test]
fn probes_are_written_as_they_were() {
    let definition = Definition::parse(WHOLE).expect("it is right");
    let json = serde_json::to_value(&definition).expect("JSON");
    assert_eq!(json["variant"][0]["probe"], "");
    assert_eq!(json["variant"][1]["probe"], "builtin:nothing");
    assert_eq!(json["variant"][1].get("server"), None);
    let mut of_a_newer_program = json.clone();
    of_a_newer_program["variant"][1]["probe"] = "builtin:sampler:99".into();
    for json in [json, of_a_newer_program] {
        let read: Definition = serde_json::from_value(json.clone()).expect("a definition");
        assert_eq!(serde_json::to_value(&read).expect("JSON"), json);
    }
}
