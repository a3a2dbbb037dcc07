//! Packets of OpenPGP: a tag, a length and a body (RFC 9580, section 4; version 4 of keys and signatures is also in
//! RFC 4880), and the fields in them.

/// No packet of a key or a signature is as long.
const MAX_BODY_BYTES: usize = 1 << 16;

/// The bytes are no packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A packet, in the bytes that it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) tag: u8,
    pub(super) body: &'a [u8],
}

/// Tags of packets that are looked at.
pub(super) mod tag {
    pub(crate) const SIGNATURE: u8 = 2;
    pub(crate) const SECRET_KEY: u8 = 5;
    pub(crate) const PUBLIC_KEY: u8 = 6;
    pub(crate) const SECRET_SUBKEY: u8 = 7;
    pub(crate) const USER_ID: u8 = 13;
    pub(crate) const PUBLIC_SUBKEY: u8 = 14;
    pub(crate) const USER_ATTRIBUTE: u8 = 17;
}

/// All packets in bytes; ends behind the first malformed one.
pub(super) struct Packets<'a>(Option<Fields<'a>>);

impl<'a> Packets<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Packets(Some(Fields(bytes)))
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Packet<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let fields = self.0.as_mut().filter(|fields| !fields.0.is_empty())?;
        let packet = packet(fields).ok_or(Malformed);
        if packet.is_err() {
            self.0 = None;
        }
        Some(packet)
    }
}

/// Lengths that arrive in pieces or that no one knows are for encrypted data.
fn packet<'a>(fields: &mut Fields<'a>) -> Option<Packet<'a>> {
    let head = fields.byte()?;
    if head & 0x80 == 0 {
        return None;
    }
    let (tag, length) = if head & 0x40 == 0 {
        let length = match head & 3 {
            0 => fields.byte()?.into(),
            1 => fields.u16()?.into(),
            2 => fields.u32()?,
            _ => return None,
        };
        (head >> 2 & 0xf, length)
    } else {
        let length = match fields.byte()? {
            short @ 0..=191 => short.into(),
            first @ 192..=223 => two_byte_length(first, fields.byte()?),
            255 => fields.u32()?,
            _ => return None,
        };
        (head & 0x3f, length)
    };
    let length = usize::try_from(length).ok()?;
    if length > MAX_BODY_BYTES {
        return None;
    }
    Some(Packet {
        tag,
        body: fields.take(length)?,
    })
}

fn two_byte_length(first: u8, second: u8) -> u32 {
    ((u32::from(first) - 192) << 8) + u32::from(second) + 192
}

/// Fields at the beginning of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The bytes of a large number without leading zeros: its length in bits comes first.
    pub(super) fn number(&mut self) -> Option<&'a [u8]> {
        let bits = usize::from(self.u16()?);
        let bytes = self.take(bits.div_ceil(8))?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        Some(&bytes[zeros..])
    }

    /// A field of a signature: its type, and its data.
    pub(super) fn subpacket(&mut self) -> Option<(u8, &'a [u8])> {
        let length = match self.byte()? {
            short @ 0..=191 => short.into(),
            255 => self.u32()?,
            first => two_byte_length(first, self.byte()?),
        };
        let (kind, data) = self.take(usize::try_from(length).ok()?)?.split_first()?;
        Some((*kind, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<Result<(u8, usize), Malformed>> {
        Packets::new(bytes)
            .map(|packet| packet.map(|packet| (packet.tag, packet.body.len())))
            .collect()
    }

    #[test]
    fn packets_have_old_and_new_lengths() {
        let old = [0x88, 1, 7, 0x99, 0, 2, 7, 7];
        assert_eq!(read(&old), [Ok((2, 1)), Ok((6, 2))]);
        let mut new = vec![0xc2, 1, 7, 0xc6, 192, 0];
        new.extend([7; 192]);
        new.extend([0xcd, 255, 0, 0, 0, 1, 7]);
        assert_eq!(read(&new), [Ok((2, 1)), Ok((6, 192)), Ok((13, 1))]);
    }

    #[test]
    fn what_is_cut_or_too_long_is_no_packet() {
        for bytes in [
            &[0x88][..],
            &[0x88, 2, 7],
            &[0x08, 0],
            &[0x8b, 0],
            &[0xc2, 224, 7],
            &[0xc2, 255, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(read(bytes), [Err(Malformed)], "{bytes:?}");
        }
        assert_eq!(read(&[0x88, 0, 0x88]), [Ok((2, 0)), Err(Malformed)]);
    }
}
