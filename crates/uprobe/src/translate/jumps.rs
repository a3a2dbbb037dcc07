//! Jumps of the assembler.

use super::{
    assembler::{Assembler, Condition},
    labels::{Fixup, Label, UNBOUND},
};

/// A short forward jump inside one BPF instruction, whose end is still to come.
#[derive(Debug)]
#[must_use = "a jump that does not land leads into the next instruction"]
pub(crate) struct ShortJump(usize);

impl Assembler {
    /// The second pass, after the first is written.
    pub(crate) fn again(mut self) -> Self {
        let labels = &mut self.labels;
        let unbound = vec![UNBOUND; labels.offsets.len()];
        labels.previous = std::mem::replace(&mut labels.offsets, unbound);
        labels.previous_ends = std::mem::take(&mut labels.ends);
        labels.fixups.clear();
        self.bytes.clear();
        self
    }

    /// Returns whether there were jumps, which a second pass may shorten.
    pub(crate) fn has_jumps(&self) -> bool {
        !self.labels.ends.is_empty()
    }

    /// The bytes, and the offset of each label; the label to blame where one is not bound.
    pub(crate) fn finish(mut self) -> Result<(Vec<u8>, Vec<u32>), Label> {
        for fixup in &self.labels.fixups {
            let target = self.labels.offsets[fixup.label.0];
            if target == UNBOUND {
                return Err(fixup.label);
            }
            let end = fixup.position + if fixup.is_short { 1 } else { 4 };
            let distance = i64::from(target) - end as i64;
            if fixup.is_short {
                let short = i8::try_from(distance).expect("code only shrinks in the second pass");
                self.bytes[fixup.position] = short.cast_unsigned();
            } else {
                let near = i32::try_from(distance).expect("programs are smaller than 2 GiB");
                self.bytes[fixup.position..end].copy_from_slice(&near.to_le_bytes());
            }
        }
        Ok((self.bytes, self.labels.offsets))
    }

    pub(crate) fn bind(&mut self, label: Label) {
        self.labels.offsets[label.0] = self.offset();
    }

    pub(crate) fn is_bound(&self, label: Label) -> bool {
        self.labels.offsets[label.0] != UNBOUND
    }

    pub(crate) fn jump(&mut self, label: Label) {
        if self.reaches_shortly(label) {
            self.byte(0xeb);
            self.short(label);
        } else {
            self.byte(0xe9);
            self.near(label);
        }
        let end = self.offset();
        self.labels.ends.push(end);
    }

    pub(crate) fn jump_if(&mut self, condition: Condition, label: Label) {
        if self.reaches_shortly(label) {
            self.byte(0x70 | condition as u8);
            self.short(label);
        } else {
            self.bytes
                .extend_from_slice(&[0x0f, 0x80 | condition as u8]);
            self.near(label);
        }
        let end = self.offset();
        self.labels.ends.push(end);
    }

    fn reaches_shortly(&self, label: Label) -> bool {
        let (Some(&target), Some(&end)) = (
            self.labels.previous.get(label.0),
            self.labels.previous_ends.get(self.labels.ends.len()),
        ) else {
            return false;
        };
        target != UNBOUND && i8::try_from(i64::from(target) - i64::from(end)).is_ok()
    }

    fn short(&mut self, label: Label) {
        self.fixup(label, true);
        self.byte(0);
    }

    pub(super) fn near(&mut self, label: Label) {
        self.fixup(label, false);
        self.word(0);
    }

    fn fixup(&mut self, label: Label, is_short: bool) {
        self.labels.fixups.push(Fixup {
            position: self.bytes.len(),
            is_short,
            label,
        });
    }

    /// A short jump forward, to where it lands ([`Assembler::land`]).
    pub(crate) fn skip_if(&mut self, condition: Condition) -> ShortJump {
        self.bytes.extend_from_slice(&[0x70 | condition as u8, 0]);
        ShortJump(self.bytes.len())
    }

    /// The same, always taken.
    pub(crate) fn skip(&mut self) -> ShortJump {
        self.bytes.extend_from_slice(&[0xeb, 0]);
        ShortJump(self.bytes.len())
    }

    pub(crate) fn land(&mut self, jump: ShortJump) {
        let distance = i8::try_from(self.bytes.len() - jump.0).expect("one instruction is short");
        self.bytes[jump.0 - 1] = distance.cast_unsigned();
    }

    /// Returns where a short jump backward leads to ([`Assembler::repeat_if`]).
    pub(crate) fn here(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn repeat_if(&mut self, condition: Condition, start: usize) {
        let length = i8::try_from(self.bytes.len() + 2 - start).expect("a short loop");
        self.byte(0x70 | condition as u8);
        self.byte((-length).cast_unsigned());
    }
}
