//! Messages and keys made by GnuPG 2.2 (`vectors`), and a real description of a suite with Debian's real keys.

use std::io::Read as _;

use super::*;

/// 2026-01-04; everything in `vectors` was made on 2026-01-01, changes of keys in the days after.
const NOW: u64 = 1_767_484_800;
const DAY: u64 = 86_400;

macro_rules! vector {
    ($name:literal) => {
        include_bytes!(concat!("vectors/", $name)).as_slice()
    };
}

fn keyring(bytes: &[u8]) -> Keyring {
    Keyring::parse(bytes, NOW).expect("a keyring")
}

fn refused(message: &[u8], keys: &[u8], now: u64) -> String {
    let keyring = Keyring::parse(keys, now).expect("a keyring");
    signed_text(message, &keyring, now).expect_err("it is refused")
}

#[test]
fn good_signatures_return_what_was_signed() {
    for (message, keys) in [
        (vector!("plain.asc"), vector!("plain.gpg")),
        (vector!("plain-sha384.asc"), vector!("plain.gpg")),
        (vector!("plain-sha512.asc"), vector!("plain.gpg")),
        (vector!("expiring.asc"), vector!("plain.gpg")),
        (vector!("rsa.asc"), vector!("rsa.gpg")),
        (vector!("rsa-sha512.asc"), vector!("rsa.gpg")),
        (vector!("sub.asc"), vector!("sub.gpg")),
        // One good signature of two is enough, whichever it is.
        (vector!("two.asc"), vector!("plain.gpg")),
        (vector!("two.asc"), vector!("other.gpg")),
    ] {
        let text = signed_text(message, &keyring(keys), NOW).expect("it is good");
        assert_eq!(text, b"A: signed\n- dash\n\nlast\n");
    }
    let all = [
        vector!("other.gpg"),
        vector!("rsa.gpg"),
        vector!("plain.gpg"),
    ]
    .concat();
    assert!(signed_text(vector!("plain.asc"), &keyring(&all), NOW).is_ok());
}

#[test]
fn what_is_not_proved_says_why() {
    let detached = String::from_utf8_lossy(vector!("binary.asc")).into_owned();
    let not_of_text = format!(
        "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\nA: signed\n- - dash\n\nlast\n{detached}"
    );
    for (message, keys, now, why) in [
        (
            vector!("other.asc"),
            vector!("plain.gpg"),
            NOW,
            "not among the trusted ones",
        ),
        (
            vector!("plain.asc"),
            &[][..],
            NOW,
            "not among the trusted ones",
        ),
        (
            vector!("sha1.asc"),
            vector!("rsa.gpg"),
            NOW,
            "by a hash that is not accepted",
        ),
        (
            vector!("short.asc"),
            vector!("short.gpg"),
            NOW + 10 * DAY,
            "is expired",
        ),
        (
            vector!("expiring.asc"),
            vector!("plain.gpg"),
            NOW + 10 * DAY,
            "is expired",
        ),
        (
            vector!("plain.asc"),
            vector!("plain.gpg"),
            NOW - 4 * DAY,
            "is from the future: check this machine's clock",
        ),
        (
            vector!("revoked.asc"),
            vector!("revoked.gpg"),
            NOW,
            "is revoked",
        ),
        (
            vector!("sub.asc"),
            vector!("sub-revoked.gpg"),
            NOW,
            "is revoked",
        ),
        (
            vector!("usage.asc"),
            vector!("usage.gpg"),
            NOW,
            "may not sign",
        ),
        (
            not_of_text.as_bytes(),
            vector!("plain.gpg"),
            NOW,
            "not one of a text",
        ),
    ] {
        let error = refused(message, keys, now);
        assert!(error.contains(why), "{error} instead of {why}");
    }
    assert!(signed_text(vector!("short.asc"), &keyring(vector!("short.gpg")), NOW).is_ok());
    let keys = keyring(vector!("plain.gpg"));
    let early = signed_text(vector!("plain.asc"), &keys, NOW - 4 * DAY);
    assert!(early.expect_err("early").contains("from the future"));
}

#[test]
fn a_changed_byte_of_a_text_is_noticed() {
    for (message, keys) in [
        (vector!("plain.asc"), vector!("plain.gpg")),
        (vector!("rsa.asc"), vector!("rsa.gpg")),
    ] {
        let keys = keyring(keys);
        let is_end = |window: &[u8]| window == b"-----BEGIN PGP SIGNATURE";
        let end = message.windows(24).position(is_end).expect("an end");
        let start = message
            .windows(2)
            .position(|two| two == b"\n\n")
            .expect("a start")
            + 2;
        let whole = signed_text(message, &keys, NOW).expect("it is good");
        for at in start..end {
            let mut changed = message.to_vec();
            changed[at] ^= 4;
            if let Ok(text) = signed_text(&changed, &keys, NOW) {
                // Only what is not signed may differ: spaces at the ends of lines.
                assert_eq!(text, whole, "{at}");
            }
        }
    }
}

#[test]
fn a_changed_byte_of_a_signature_is_noticed() {
    let keys = keyring(vector!("rsa.gpg"));
    let message = armor::message(vector!("rsa.asc")).expect("a message");
    let body = Packets::new(&message.signatures)
        .next()
        .expect("one")
        .expect("a packet")
        .body;
    let key = |signature: &Signature<'_>| {
        let key = keys.signers(signature).next();
        key.is_some_and(|key| signature.verifies(&key.public, &message.signed))
    };
    assert!(Signature::parse(body).is_some_and(|one| key(&one)));
    let unhashed = 6 + usize::from(body[4]) * 256 + usize::from(body[5]);
    let unhashed = unhashed..unhashed + 2 + usize::from(body[unhashed + 1]);
    for at in (0..body.len()).filter(|at| !unhashed.contains(at)) {
        let mut changed = body.to_vec();
        changed[at] ^= 1;
        let verifies = Signature::parse(&changed).is_some_and(|one| key(&one));
        // The length of a number in bits may say the same in bytes.
        assert!(!verifies || at == unhashed.end + 3, "{at}");
    }
}

#[test]
fn a_subkey_must_be_bound_by_both_keys() {
    let whole = vector!("sub.gpg");
    assert_eq!(keyring(whole).usable().len(), 1);
    let packets: Vec<_> = Packets::new(whole)
        .collect::<Result<_, _>>()
        .expect("packets");
    let packed = |packets: &[packet::Packet<'_>]| -> Vec<u8> {
        let one = |packet: &packet::Packet<'_>| {
            [
                &[0x80 | packet.tag << 2, packet.body.len() as u8],
                packet.body,
            ]
            .concat()
        };
        packets.iter().flat_map(one).collect()
    };
    assert_eq!(packed(&packets), whole);
    // Without its binding, and with the certification of its owner alone.
    assert_eq!(keyring(&packed(&packets[..4])).usable().len(), 0);
    // Without the subkey's own signature, which only it could make.
    let mut binding = packets[4].body.to_vec();
    let embedded = binding
        .windows(2)
        .rposition(|two| two == [32, 4])
        .expect("one");
    binding[embedded + 60] ^= 1;
    let mut changed = packets.clone();
    changed[4].body = &binding;
    let keys = keyring(&packed(&changed));
    assert_eq!(keys.usable().len(), 0);
    let error = signed_text(vector!("sub.asc"), &keys, NOW).expect_err("not bound");
    assert!(error.contains("is not bound to its primary key"), "{error}");
    // A subkey of another owner, with the binding to its own primary key.
    let foreign = [vector!("plain.gpg"), &packed(&packets[3..])].concat();
    let error = signed_text(vector!("sub.asc"), &keyring(&foreign), NOW).expect_err("not bound");
    assert!(error.contains("is not bound to its primary key"), "{error}");
}

#[test]
fn what_a_key_may_do_is_signed() {
    let flags = |bytes: &[u8]| bytes.windows(3).rposition(|three| three == [2, 27, 1]);
    let mut keys = vector!("usage.gpg").to_vec();
    let at = flags(&keys).expect("flags");
    keys[at + 2] = 3;
    let error = refused(vector!("usage.asc"), &keys, NOW);
    assert!(
        error.contains("has no valid signature of its owner"),
        "{error}"
    );
    let mut keys = vector!("sub.gpg").to_vec();
    let flags = keys.windows(3).rposition(|three| three == [2, 27, 2]);
    keys[flags.expect("flags") + 2] = 3;
    let error = refused(vector!("sub.asc"), &keys, NOW);
    assert!(error.contains("is not bound to its primary key"), "{error}");
}

#[test]
fn debians_keys_sign_debians_suites() {
    // 2026-11-29.
    const NOW: u64 = 1_795_910_400;
    let mut message = Vec::new();
    lzma_rust2::XzReader::new(vector!("trixie-updates.xz"), false)
        .read_to_end(&mut message)
        .expect("a message");
    let keys = Keyring::embedded(NOW);
    let mut usable = keys.usable();
    usable.sort();
    // Per release: a key for automatic signatures with a subkey, and a key for stable releases.
    let wanted = [
        "225629DF75B188BD",
        "6ED0E7B82643E131",
        "762F67A0B2C39DE4",
        "78DBA3BC47EF2265",
        "B7C5D7D6350947F8",
        "F8D2585B8783D481",
    ];
    assert_eq!(usable, wanted);
    let text = signed_text(&message, &keys, NOW).expect("it is good");
    assert!(text.starts_with(b"Origin: Debian\n"));
    let years = 20 * 365 * DAY;
    let error = signed_text(&message, &Keyring::embedded(NOW + years), NOW + years);
    assert!(error.expect_err("expired").contains("is expired"));
}

#[test]
fn keyrings_that_are_damaged_are_refused() {
    for bytes in [&b"nonsense"[..], &vector!("rsa.gpg")[..700], &[0x99; 5]] {
        assert!(Keyring::parse(bytes, NOW).is_err());
    }
    assert!(keyring(b"").is_empty());
}
