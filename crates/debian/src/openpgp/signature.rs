//! Signatures and the keys that check them. All cryptography is ring's.

use std::fmt;

use ring::{
    digest,
    signature::{
        ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
        RSA_PKCS1_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
    },
};

use super::packet::Fields;

const RSA: [u8; 2] = [1, 3];
/// Ed25519 in its older form, with numbers and the name of a curve.
const EDDSA: u8 = 22;
const ED25519_KEY: u8 = 27;

/// The name of Ed25519's curve, behind its length.
const CURVE: &[u8] = &[9, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];
/// Stands before the bytes of a point of that curve.
const NATIVE_POINT: u8 = 0x40;

/// The key may sign data.
const MAY_SIGN: u8 = 0x02;

/// Last eight bytes of a fingerprint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyId(pub(super) [u8; 8]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

/// A public key of version 4.
#[derive(Clone)]
pub(super) struct PublicKey {
    pub(super) created: u64,
    pub(super) fingerprint: [u8; 20],
    material: Material,
    body: Vec<u8>,
}

#[derive(Clone)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Ed25519 { algorithm: u8, point: [u8; 32] },
}

impl PublicKey {
    /// Reads the body of a packet; `None` for a key of another version or algorithm.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        if fields.byte()? != 4 {
            return None;
        }
        let created = fields.u32()?.into();
        let material = match fields.byte()? {
            algorithm if RSA.contains(&algorithm) => Material::Rsa {
                n: fields.number()?.to_vec(),
                e: fields.number()?.to_vec(),
            },
            EDDSA => {
                if fields.take(CURVE.len())? != CURVE {
                    return None;
                }
                let (prefix, point) = fields.number()?.split_first()?;
                if *prefix != NATIVE_POINT {
                    return None;
                }
                Material::Ed25519 {
                    algorithm: EDDSA,
                    point: point.try_into().ok()?,
                }
            }
            ED25519_KEY => Material::Ed25519 {
                algorithm: ED25519_KEY,
                point: fields.array()?,
            },
            _ => return None,
        };
        if !fields.0.is_empty() {
            return None;
        }
        let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        hash.update(&framed_key(body));
        Some(PublicKey {
            created,
            fingerprint: hash.finish().as_ref().try_into().ok()?,
            material,
            body: body.to_vec(),
        })
    }

    pub(super) fn id(&self) -> KeyId {
        let mut id = [0; 8];
        id.copy_from_slice(&self.fingerprint[12..]);
        KeyId(id)
    }

    /// The key in the form that signatures about keys cover.
    pub(super) fn framed(&self) -> Vec<u8> {
        framed_key(&self.body)
    }
}

fn framed_key(body: &[u8]) -> Vec<u8> {
    // Bodies of packets are shorter than 65,536 bytes, or they are none of version 4.
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    [&[0x99], &length.to_be_bytes()[..], body].concat()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    fn parse(number: u8) -> Option<Self> {
        match number {
            8 => Some(Hash::Sha256),
            9 => Some(Hash::Sha384),
            10 => Some(Hash::Sha512),
            _ => None,
        }
    }

    fn digest(self, data: &[u8]) -> digest::Digest {
        let algorithm = match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha384 => &digest::SHA384,
            Hash::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, data)
    }

    fn rsa(self) -> &'static RsaParameters {
        match self {
            Hash::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
            Hash::Sha384 => &RSA_PKCS1_2048_8192_SHA384,
            Hash::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
        }
    }
}

/// Kinds of signatures that are looked at.
pub(super) mod kind {
    pub(crate) const TEXT: u8 = 0x01;
    pub(crate) const CERTIFICATION: std::ops::RangeInclusive<u8> = 0x10..=0x13;
    pub(crate) const SUBKEY_BINDING: u8 = 0x18;
    pub(crate) const PRIMARY_KEY_BINDING: u8 = 0x19;
    pub(crate) const DIRECT_KEY: u8 = 0x1f;
    pub(crate) const KEY_REVOCATION: u8 = 0x20;
    pub(crate) const SUBKEY_REVOCATION: u8 = 0x28;
    pub(crate) const CERTIFICATION_REVOCATION: u8 = 0x30;
}

/// A signature of version 4. What it says of itself is only true once it is verified.
pub(super) struct Signature<'a> {
    pub(super) kind: u8,
    pub(super) created: u64,
    /// When it ends, in seconds since 1970.
    pub(super) expires: Option<u64>,
    /// Lifetime of the key that it is about, in seconds.
    pub(super) key_lifetime: Option<u64>,
    flags: Option<u8>,
    issuer: Option<KeyId>,
    fingerprint: Option<[u8; 20]>,
    /// The signature of a subkey over its primary key.
    pub(super) embedded: Option<&'a [u8]>,
    algorithm: u8,
    hash: Hash,
    hashed: &'a [u8],
    left: [u8; 2],
    values: Fields<'a>,
}

impl<'a> Signature<'a> {
    /// Reads the body of a packet; `None` for one of another version or hash, or with a critical field that is not
    /// known here.
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let [version, kind, algorithm, hash] = fields.array()?;
        if version != 4 {
            return None;
        }
        let length = usize::from(fields.u16()?);
        let about = Fields(fields.take(length)?);
        let hashed = &body[..6 + length];
        let length = usize::from(fields.u16()?);
        let beside = Fields(fields.take(length)?);
        let mut signature = Signature {
            kind,
            created: 0,
            expires: None,
            key_lifetime: None,
            flags: None,
            issuer: None,
            fingerprint: None,
            embedded: None,
            algorithm,
            hash: Hash::parse(hash)?,
            hashed,
            left: fields.array()?,
            values: fields,
        };
        let lifetime = signature.read_hashed(about)?;
        signature.read_unhashed(beside)?;
        // A signature without a time of its own is none.
        if signature.created == 0 {
            return None;
        }
        signature.expires = lifetime.map(|lifetime| signature.created + lifetime);
        Some(signature)
    }

    /// Reads what is signed with the rest; returns the signature's lifetime.
    fn read_hashed(&mut self, mut fields: Fields<'a>) -> Option<Option<u64>> {
        let mut lifetime = None;
        while !fields.0.is_empty() {
            let (kind, data) = fields.subpacket()?;
            let mut value = Fields(data);
            match kind & 0x7f {
                2 => self.created = value.u32()?.into(),
                3 => lifetime = Some(value.u32()?.into()).filter(|seconds| *seconds > 0),
                9 => self.key_lifetime = Some(value.u32()?.into()).filter(|seconds| *seconds > 0),
                27 => self.flags = Some(data.first().copied().unwrap_or(0)),
                16 | 32 | 33 => self.read_shared(kind, data)?,
                // Trust, preferences, the reason of a revocation and the like change nothing here.
                4..=7 | 11 | 12 | 21..=26 | 28..=31 | 34 | 35 => {}
                _ if kind & 0x80 != 0 => return None,
                _ => {}
            }
        }
        Some(lifetime)
    }

    /// Reads what anyone can have changed: hints, and what has a signature of its own.
    fn read_unhashed(&mut self, mut fields: Fields<'a>) -> Option<()> {
        while !fields.0.is_empty() {
            let (kind, data) = fields.subpacket()?;
            self.read_shared(kind, data)?;
        }
        Some(())
    }

    fn read_shared(&mut self, kind: u8, data: &'a [u8]) -> Option<()> {
        match kind & 0x7f {
            16 => self.issuer = Some(KeyId(data.try_into().ok()?)),
            32 => self.embedded = Some(data),
            33 => {
                if let Some((4, fingerprint)) = data.split_first().map(|(v, rest)| (*v, rest)) {
                    self.fingerprint = Some(fingerprint.try_into().ok()?);
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Returns whether the signature says that it is by that key.
    pub(super) fn is_by(&self, key: &PublicKey) -> bool {
        match (self.fingerprint, self.issuer) {
            (Some(fingerprint), _) => fingerprint == key.fingerprint,
            (None, Some(issuer)) => issuer == key.id(),
            (None, None) => false,
        }
    }

    /// The key that the signature says it is by.
    pub(super) fn signer(&self) -> Option<KeyId> {
        let of_fingerprint = self.fingerprint.map(|fingerprint| {
            let mut id = [0; 8];
            id.copy_from_slice(&fingerprint[12..]);
            KeyId(id)
        });
        of_fingerprint.or(self.issuer)
    }

    /// Returns whether it lets a key sign data. A signature without flags lets it do anything that its algorithm can.
    pub(super) fn lets_sign(&self) -> bool {
        self.flags.is_none_or(|flags| flags & MAY_SIGN != 0)
    }

    /// Returns whether the signature is one by `key` over `data`.
    pub(super) fn verifies(&self, key: &PublicKey, data: &[u8]) -> bool {
        let length = u32::try_from(self.hashed.len()).unwrap_or(u32::MAX);
        let end = [&[4, 0xff], &length.to_be_bytes()[..]].concat();
        let data = [data, self.hashed, &end].concat();
        let digest = self.hash.digest(&data);
        if digest.as_ref()[..2] != self.left {
            return false;
        }
        self.is_valid(key, &data, digest.as_ref()).unwrap_or(false)
    }

    fn is_valid(&self, key: &PublicKey, data: &[u8], digest: &[u8]) -> Option<bool> {
        let mut values = self.values;
        match &key.material {
            Material::Rsa { n, e } if RSA.contains(&self.algorithm) => {
                let value = padded(values.number()?, n.len())?;
                let key = RsaPublicKeyComponents { n, e };
                let is_valid = key.verify(self.hash.rsa(), data, &value).is_ok();
                Some(is_valid && values.0.is_empty())
            }
            Material::Ed25519 { algorithm, point } if *algorithm == self.algorithm => {
                let value = if *algorithm == EDDSA {
                    let (r, s) = (values.number()?, values.number()?);
                    [padded(r, 32)?, padded(s, 32)?].concat()
                } else {
                    values.take(64)?.to_vec()
                };
                let key = UnparsedPublicKey::new(&ED25519, point);
                Some(key.verify(digest, &value).is_ok() && values.0.is_empty())
            }
            _ => Some(false),
        }
    }
}

/// The kind that a signature of any version says it has.
pub(super) fn claimed_kind(body: &[u8]) -> Option<u8> {
    match body.first()? {
        2 | 3 => body.get(2).copied(),
        _ => body.get(1).copied(),
    }
}

/// A number with zeros before it.
fn padded(number: &[u8], length: usize) -> Option<Vec<u8>> {
    let zeros = length.checked_sub(number.len())?;
    Some([&vec![0; zeros], number].concat())
}
