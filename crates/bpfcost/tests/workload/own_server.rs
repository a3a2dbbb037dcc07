//! A variant with its own server: both run at once, and each window uses its own.

use std::{collections::BTreeSet, fs};

use crate::definition::{REDIS, able, with};

/// Asks the server that it meets who that is, and what it was started with.
const ASKS: &str = r#"command = ["sh", "-c", "redis-cli -p {port} config get maxclients | tail -n 1 | tr '\n' ' ' >> seen; redis-cli -p {port} info server | grep -a ^process_id | tr -d '\r' | cut -d: -f2 | sed 's/$/ {variant}/' >> seen; sleep 0.1; echo 7 things"]
output = "text"
metrics = { ops = "(\\d+) things" }
"#;

#[test]
fn a_variant_can_have_a_server_of_its_own() {
    if !able(&["redis-server", "redis-cli"]) {
        return;
    }
    let from = REDIS
        .find("command = [\"redis-benchmark\"")
        .expect("it is there");
    let to = REDIS.find("\n[[variant]]").expect("it is there");
    let tool = with(REDIS, &REDIS[from..to], ASKS);
    let text = fs::read_to_string(tool.path("x.toml")).expect("it was written");
    let own = "[[variant]]\nname = \"few\"\nabout = \"a server for few clients\"\nquick = true\n\
               server = { arguments = [\"--maxclients\", \"77\"] }\n";
    let text = text.replace("window-ms = 150", "window-ms = 100\nrounds = 3");
    tool.write("x.toml", format!("{text}\n{own}"));
    let said = tool.says("run x.toml --quick --format json --out x.json");
    assert_eq!(said.code, Some(0), "{said:?}");
    let seen = fs::read_to_string(tool.path("seen")).expect("clients wrote it");
    let seen: Vec<Vec<&str>> = seen
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let of = |few: bool| seen.iter().filter(move |line| (line[2] == "few") == few);
    for (few, limit) in [(true, "77"), (false, "10000")] {
        assert!(of(few).count() >= 6, "{seen:?}");
        assert!(of(few).all(|line| line[0] == limit), "{seen:?}");
    }
    let servers = |few| of(few).map(|line| line[1]).collect::<BTreeSet<_>>();
    assert!(servers(true).is_disjoint(&servers(false)), "{seen:?}");
    // In each epoch, the other server is met both before and after windows of the own one: both run all the time.
    for server in servers(false) {
        let first = seen.iter().position(|line| line[1] == server);
        let last = seen.iter().rposition(|line| line[1] == server);
        let (first, last) = first.zip(last).expect("it was seen");
        let between = seen[first..last].iter().filter(|line| line[2] == "few");
        assert!(between.count() >= 1, "{server}: {seen:?}");
    }
}
