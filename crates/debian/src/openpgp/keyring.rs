//! Keyrings: which of their keys may sign data now, by what their owners signed about them.

use super::{
    armor,
    packet::{Packet, Packets, tag},
    signature::{PublicKey, Signature, claimed_kind, kind},
};

/// Keyrings of distributions have some 100 keys.
const MAX_PACKETS: usize = 20_000;
const MAX_BYTES: usize = 4 << 20;

/// A key, and why it may not sign.
pub(super) struct Key {
    pub(super) public: PublicKey,
    pub(super) refused: Option<&'static str>,
}

/// Public keys that are trusted to sign.
#[derive(Default)]
pub struct Keyring {
    pub(super) keys: Vec<Key>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = self.keys.iter().map(|key| key.public.id().to_string());
        f.debug_list().entries(ids).finish()
    }
}

impl Keyring {
    /// Reads a keyring file; says what is wrong with it. `now` is in seconds since 1970.
    ///
    /// Keys of other versions and algorithms are left out, and so is each signature that does not verify.
    pub fn parse(bytes: &[u8], now: u64) -> Result<Self, &'static str> {
        if bytes.len() > MAX_BYTES {
            return Err("the file is too large for a keyring");
        }
        let bytes = armor::keyring(bytes).ok_or("the file is no keyring of OpenPGP")?;
        let packets: Vec<Packet<'_>> = Packets::new(&bytes)
            .take(MAX_PACKETS)
            .collect::<Result<_, _>>()
            .map_err(|_| "the file is no keyring of OpenPGP, or it is truncated")?;
        let mut keyring = Keyring::default();
        let mut rest = packets.as_slice();
        while let Some(start) = rest.iter().position(|packet| is_primary(packet.tag)) {
            let certificate = &rest[start..];
            let end = certificate[1..]
                .iter()
                .position(|packet| is_primary(packet.tag))
                .map_or(certificate.len(), |end| end + 1);
            keyring.add(&certificate[..end], now);
            rest = &certificate[end..];
        }
        Ok(keyring)
    }

    /// Takes in the keys of another keyring.
    pub fn extend(&mut self, other: Keyring) {
        self.keys.extend(other.keys);
    }

    /// Returns whether no key is in it.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Adds the keys of a certificate: a primary key, who owns it, and its subkeys, each with signatures.
    fn add(&mut self, packets: &[Packet<'_>], now: u64) {
        let Some((first, packets)) = packets.split_first() else {
            return;
        };
        let Some(primary) = PublicKey::parse(first.body).filter(|_| first.tag == tag::PUBLIC_KEY)
        else {
            return;
        };
        let parts = parts(packets);
        let about = primary_signature(&primary, &parts, now);
        let is_revoked = (parts.iter().take(1))
            .any(|part| part.is_revoked(kind::KEY_REVOCATION, &primary, &primary.framed(), 0));
        let dead = match &about {
            _ if is_revoked => Some("is revoked"),
            _ if primary.created > now => Some(FROM_THE_FUTURE),
            None => Some("has no valid signature of its owner"),
            Some(about) => lifetime_problem(&primary, about, now),
        };
        let refused =
            dead.or_else(|| (!about.is_some_and(|about| about.lets_sign())).then_some(NOT_TO_SIGN));
        for part in parts.iter().filter(|part| part.tag == tag::PUBLIC_SUBKEY) {
            if let Some(subkey) = PublicKey::parse(part.body) {
                let refused = dead.or_else(|| subkey_problem(&primary, &subkey, part, now));
                self.keys.push(Key {
                    public: subkey,
                    refused,
                });
            }
        }
        self.keys.push(Key {
            public: primary,
            refused,
        });
    }

    /// The keys that a signature says it is by.
    pub(super) fn signers(&self, signature: &Signature<'_>) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(|key| signature.is_by(&key.public))
    }

    /// Names of the keys that may sign.
    #[cfg(test)]
    pub(super) fn usable(&self) -> Vec<String> {
        let usable = self.keys.iter().filter(|key| key.refused.is_none());
        usable.map(|key| key.public.id().to_string()).collect()
    }
}

const NOT_TO_SIGN: &str = "may not sign data";
const FROM_THE_FUTURE: &str = "is from the future: check this machine's clock";

fn is_primary(tag: u8) -> bool {
    matches!(tag, tag::PUBLIC_KEY | tag::SECRET_KEY)
}

/// A part of a certificate: the primary key itself, a user, or a subkey; with the signatures behind it.
struct Part<'a> {
    tag: u8,
    body: &'a [u8],
    signatures: Vec<&'a [u8]>,
}

impl<'a> Part<'a> {
    /// Returns whether a signature of that kind revokes it, made at `since` or later. One that cannot be checked here,
    /// by its hash or its form, is believed: only the owner of the file can have put it there.
    fn is_revoked(&self, kind: u8, by: &PublicKey, data: &[u8], since: u64) -> bool {
        let mut all = self.signatures.iter();
        all.any(|body| match Signature::parse(body) {
            Some(one) => one.kind == kind && one.created >= since && one.verifies(by, data),
            None => claimed_kind(body) == Some(kind),
        })
    }

    /// The newest signature that verifies and holds now.
    fn newest(
        &self,
        is_wanted: impl Fn(u8) -> bool,
        by: &PublicKey,
        data: &[u8],
        now: u64,
    ) -> Option<Signature<'a>> {
        let all = self.signatures.iter();
        all.filter_map(|body| Signature::parse(body))
            .filter(|one| is_wanted(one.kind) && one.is_by(by) && one.created <= now)
            .filter(|one| one.verifies(by, data))
            .max_by_key(|one| one.created)
            .filter(|one| one.expires.is_none_or(|expires| expires > now))
    }
}

fn parts<'a>(packets: &[Packet<'a>]) -> Vec<Part<'a>> {
    let mut parts = vec![Part {
        tag: tag::PUBLIC_KEY,
        body: &[],
        signatures: Vec::new(),
    }];
    for packet in packets {
        match packet.tag {
            tag::SIGNATURE => {
                if let Some(part) = parts.last_mut() {
                    part.signatures.push(packet.body);
                }
            }
            tag::USER_ID | tag::USER_ATTRIBUTE | tag::PUBLIC_SUBKEY | tag::SECRET_SUBKEY => {
                parts.push(Part {
                    tag: packet.tag,
                    body: packet.body,
                    signatures: Vec::new(),
                });
            }
            // Markers, trust and padding.
            _ => {}
        }
    }
    parts
}

/// The newest signature of the owner about the primary key: by itself, or about one of the owner's names.
fn primary_signature<'a>(
    primary: &PublicKey,
    parts: &[Part<'a>],
    now: u64,
) -> Option<Signature<'a>> {
    let of_part = |part: &Part<'a>| {
        let mut data = primary.framed();
        let length = u32::try_from(part.body.len()).ok()?.to_be_bytes();
        match part.tag {
            tag::PUBLIC_KEY => {
                return part.newest(|one| one == kind::DIRECT_KEY, primary, &data, now);
            }
            tag::USER_ID => data.push(0xb4),
            _ => return None,
        }
        data.extend(length);
        data.extend(part.body);
        let is_certification = |one| kind::CERTIFICATION.contains(&one);
        let about = part.newest(is_certification, primary, &data, now)?;
        let revocation = kind::CERTIFICATION_REVOCATION;
        let is_revoked = part.is_revoked(revocation, primary, &data, about.created);
        (!is_revoked).then_some(about)
    };
    parts
        .iter()
        .filter_map(of_part)
        .max_by_key(|one| one.created)
}

fn lifetime_problem(key: &PublicKey, about: &Signature<'_>, now: u64) -> Option<&'static str> {
    if key.created > now {
        return Some(FROM_THE_FUTURE);
    }
    let lifetime = about.key_lifetime?;
    (key.created + lifetime <= now).then_some("is expired")
}

/// The problem with a subkey, which must be bound to its primary key by both.
fn subkey_problem(
    primary: &PublicKey,
    subkey: &PublicKey,
    part: &Part<'_>,
    now: u64,
) -> Option<&'static str> {
    let data = [primary.framed(), subkey.framed()].concat();
    if part.is_revoked(kind::SUBKEY_REVOCATION, primary, &data, 0) {
        return Some("is revoked");
    }
    let is_binding = |one| one == kind::SUBKEY_BINDING;
    let Some(binding) = part.newest(is_binding, primary, &data, now) else {
        return Some("is not bound to its primary key");
    };
    if !binding.lets_sign() {
        return Some(NOT_TO_SIGN);
    }
    let agrees = binding
        .embedded
        .and_then(Signature::parse)
        .is_some_and(|one| one.kind == kind::PRIMARY_KEY_BINDING && one.verifies(subkey, &data));
    if !agrees {
        return Some("is not bound to its primary key");
    }
    lifetime_problem(subkey, &binding, now)
}
