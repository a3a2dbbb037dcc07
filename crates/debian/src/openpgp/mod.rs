//! Signed messages of OpenPGP, as archives have them: the reader of a text form (RFC 9580 and 4880). Cryptography is
//! ring's; what is not needed for archives is not read: no encryption, no version but 4, no hash but SHA-2.

mod armor;
mod keyring;
mod packet;
mod signature;
#[cfg(test)]
mod tests;

pub use keyring::Keyring;
use packet::{Packets, tag};
use signature::{Signature, kind};

/// Archives sign with a few keys each.
const MAX_SIGNATURES: usize = 32;

/// Seconds that the clock of a signer may be ahead of this one.
pub(crate) const CLOCK_SKEW_S: u64 = 60;

/// Returns the text that a message signs, or why no signature in it is good.
///
/// One signature by a key that may sign now is enough. Nothing but the signed text is returned, and a message with
/// anything before or behind it is refused. `now` is in seconds since 1970.
pub fn signed_text(message: &[u8], keyring: &Keyring, now: u64) -> Result<Vec<u8>, String> {
    let message = armor::message(message)?;
    // The most telling reason: one about a known key.
    let mut reason: Option<(bool, String)> = None;
    let mut note = |is_known: bool, text: String| {
        if reason.as_ref().is_none_or(|(known, _)| is_known && !known) {
            reason = Some((is_known, text));
        }
    };
    for packet in Packets::new(&message.signatures).take(MAX_SIGNATURES) {
        let Ok(packet) = packet else {
            note(false, "its signature is damaged".to_owned());
            break;
        };
        if packet.tag != tag::SIGNATURE {
            continue;
        }
        let Some(signature) = Signature::parse(packet.body) else {
            note(
                false,
                "its signature is in a form or by a hash that is not accepted".to_owned(),
            );
            continue;
        };
        let Some(signer) = signature.signer() else {
            note(false, "its signature names no key".to_owned());
            continue;
        };
        let mut is_known = false;
        for key in keyring.signers(&signature) {
            is_known = true;
            let problem = if let Some(refused) = key.refused {
                format!("the key {signer}, which signed it, {refused}")
            } else if signature.kind != kind::TEXT {
                format!("the signature by the key {signer} is not one of a text")
            } else if signature.created > now + CLOCK_SKEW_S {
                format!(
                    "the signature by the key {signer} is from the future: check this machine's clock"
                )
            } else if signature.expires.is_some_and(|expires| expires <= now)
                || signature.created < key.public.created
            {
                format!("the signature by the key {signer} is expired")
            } else if signature.verifies(&key.public, &message.signed) {
                return Ok(message.text);
            } else {
                format!("the signature by the key {signer} is wrong")
            };
            note(true, problem);
        }
        if !is_known {
            note(
                false,
                format!("it is signed by the key {signer}, which is not among the trusted ones"),
            );
        }
    }
    Err(reason.map_or_else(|| "it has no signature".to_owned(), |(_, text)| text))
}
