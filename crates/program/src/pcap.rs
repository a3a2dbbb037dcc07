//! The packets of a capture file: classic pcap of an Ethernet link, of either byte order, with micro- or nanoseconds.
//!
//! If the link type says that each frame ends with a frame check sequence (FCS), it is removed: programs never get it.

use pcap_parser::{
    Linktype, PcapHeader, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified,
    parse_pcap_header,
};

/// How a pcapng file begins.
const NEXT_GENERATION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// What a file's header says of its frames.
struct Link {
    /// The number of the link type.
    number: i32,
    /// Bytes of the frame check sequence at the end of each.
    fcs_bytes: usize,
}

impl Link {
    /// The type is the lower half. The upper four bits count words of 2 bytes of FCS, if the bit `FCS_LENGTH` is set.
    fn from_header(header: &PcapHeader) -> Self {
        const FCS_LENGTH: u32 = 1 << 26;
        let word = header.network.0.cast_unsigned();
        let fcs_words = if word & FCS_LENGTH == 0 {
            0
        } else {
            word >> 28
        };
        Link {
            number: (word & 0xffff).cast_signed(),
            fcs_bytes: 2 * fcs_words as usize,
        }
    }
}

/// The packets, of which no more than `most` are read, or why they can't be used.
pub fn packets(file: &[u8], most: usize) -> Result<Vec<Vec<u8>>, String> {
    if file.starts_with(&NEXT_GENERATION) {
        return Err(
            "it is a pcapng file, and only classic pcap is read\n  Convert it: editcap -F pcap IN OUT"
                .to_owned(),
        );
    }
    let (mut rest, header) = parse_pcap_header(file).map_err(|_| {
        "it is not a capture in the pcap format\n  Make one: tcpdump -i INTERFACE -c 10 -w FILE.pcap"
            .to_owned()
    })?;
    let link = Link::from_header(&header);
    if link.number != Linktype::ETHERNET.0 {
        return Err(format!(
            "it is of link type {}, and programs are run on Ethernet frames (link type 1)\n  Capture on an Ethernet \
             interface, not on `any`",
            link.number
        ));
    }
    let frame = if header.is_modified_format() {
        parse_pcap_frame_modified
    } else if header.is_bigendian() {
        parse_pcap_frame_be
    } else {
        parse_pcap_frame
    };
    let mut packets = Vec::new();
    while !rest.is_empty() && packets.len() < most {
        let number = packets.len() + 1;
        let (after, block) =
            frame(rest).map_err(|_| format!("it ends inside of packet {number}"))?;
        if block.caplen < block.origlen {
            return Err(format!(
                "packet {number} has {} of its {} bytes\n  Capture whole packets: tcpdump -s 0",
                block.caplen, block.origlen
            ));
        }
        let frame = block.data.len().checked_sub(link.fcs_bytes);
        let frame = frame.and_then(|bytes| block.data.get(..bytes));
        let frame = frame.ok_or_else(|| {
            format!(
                "packet {number} has {} bytes, fewer than the {} of the frame check sequence that the file's header names",
                block.caplen, link.fcs_bytes
            )
        })?;
        packets.push(frame.to_vec());
        rest = after;
    }
    if packets.is_empty() {
        return Err("there is no packet in it".to_owned());
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MICROS: u32 = 0xa1b2_c3d4;
    const NANOS: u32 = 0xa1b2_3c4d;

    /// A file of these packets, each with so many bytes missing.
    fn file(word: fn(u32) -> [u8; 4], magic: u32, link: u32, packets: &[(&[u8], u32)]) -> Vec<u8> {
        let half = |number: u32| {
            let bytes = word(number);
            if word(1)[0] == 1 {
                [bytes[0], bytes[1]]
            } else {
                [bytes[2], bytes[3]]
            }
        };
        let mut file = word(magic).to_vec();
        file.extend([half(2), half(4)].concat());
        for number in [0, 0, 65_535, link] {
            file.extend(word(number));
        }
        for (bytes, missing) in packets {
            let length = bytes.len() as u32;
            for number in [1, 2, length, length + missing] {
                file.extend(word(number));
            }
            file.extend(*bytes);
        }
        file
    }

    #[test]
    fn packets_are_read_in_either_byte_order() {
        let wanted: [(&[u8], u32); 2] = [(&[1; 60], 0), (&[2; 1514], 0)];
        for magic in [MICROS, NANOS] {
            for word in [u32::to_le_bytes, u32::to_be_bytes] {
                let packets = packets(&file(word, magic, 1, &wanted), 9).expect("packets");
                assert_eq!(packets, [vec![1; 60], vec![2; 1514]]);
                let first = super::packets(&file(word, magic, 1, &wanted), 1).expect("packets");
                assert_eq!(first, [vec![1; 60]]);
            }
        }
    }

    #[test]
    fn a_frame_check_sequence_is_removed() {
        let wanted: [(&[u8], u32); 1] = [(&[1; 64], 0)];
        for word in [u32::to_le_bytes, u32::to_be_bytes] {
            for (link, bytes) in [
                (1, 64),
                (0x1400_0001, 62),
                (0x2400_0001, 60),
                (0x2000_0001, 64),
            ] {
                let packets = packets(&file(word, MICROS, link, &wanted), 9).expect("packets");
                assert_eq!(packets, [vec![1; bytes]], "{link:#x}");
            }
        }
        let short = file(u32::to_le_bytes, MICROS, 0x2400_0001, &[(&[1; 3], 0)]);
        let error = packets(&short, 9).expect_err("it has no frame");
        assert!(error.contains("frame check sequence"), "{error}");
    }

    #[test]
    fn what_is_no_capture_of_whole_frames_is_refused() {
        let whole = file(u32::to_le_bytes, MICROS, 1, &[(&[1; 60], 0)]);
        let cut = &whole[..whole.len() - 1];
        let snapped = file(
            u32::to_le_bytes,
            MICROS,
            1,
            &[(&[1; 60], 0), (&[1; 60], 40)],
        );
        let cooked = file(u32::to_le_bytes, MICROS, 113, &[(&[1; 60], 0)]);
        let empty = file(u32::to_le_bytes, MICROS, 1, &[]);
        for (file, says) in [
            (cut, "ends inside of packet 1"),
            (&snapped, "packet 2 has 60 of its 100 bytes"),
            (&cooked, "link type 113"),
            (&empty, "no packet"),
            (b"text", "not a capture"),
            (&[&NEXT_GENERATION[..], &[0; 40]].concat(), "pcapng"),
            (&[], "not a capture"),
        ] {
            let error = packets(file, 9).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_file_is_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..100) {
            let _ = packets(&bytes, 9);
            let mut damaged = file(u32::to_le_bytes, MICROS, 1, &[(&[1; 60], 0)]);
            damaged.truncate(cut);
            damaged.extend(bytes);
            let _ = packets(&damaged, 9);
        }
    }
}
