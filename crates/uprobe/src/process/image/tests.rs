use super::*;

#[test]
fn names_with_few_edits_or_more_around_them_are_suggested() {
    let names = vec!["SSL_write", "SSL_write_ex", "SSL_read", "main"];
    assert_eq!(nearest("SSL_wirte", names.clone()), ["SSL_write"]);
    assert_eq!(
        nearest("SSL_writ", names.clone()),
        ["SSL_write", "SSL_write_ex"]
    );
    assert!(nearest("frobnicate", names).is_empty());
}

#[test]
fn sizes_beyond_the_last_address_are_no_functions() {
    let whole = fs::read("../bpfcost/fuzz/seeds/elf/static").expect("a program");
    let function = |data: Vec<u8>| Image::of_bytes(data)?.function("main");
    let found = function(whole.clone()).expect("a function");
    assert!(!found.code.is_empty());
    // Its symbol: 4 bytes of name, 4 of kind and section, then its address and its size.
    let file = object::File::parse(&whole[..]).expect("a file");
    let main = file.symbol_by_name("main").expect("a symbol");
    let entry = [main.address(), main.size()].map(u64::to_le_bytes).concat();
    let at = whole.windows(16).position(|bytes| bytes == entry);
    let at = at.expect("its symbol");
    let mut damaged = whole;
    damaged[at + 8..at + 16].fill(0xff);
    assert!(function(damaged).is_err());
}
