//! Jumps by which a function leaves to another one, which returns in its place.

use super::{Decoded, JUMP, Site, When};
use iced_x86::FlowControl;

impl Decoded<'_> {
    /// The place for a jump that leads to a tail jump: its own bytes, or as few instructions before it as there have to
    /// be.
    pub(super) fn before_tail_jump(&self, index: usize) -> Result<Site, &'static str> {
        let jump = &self.instructions[index];
        let mut known = self.function.tail_jumps.iter();
        let known = known.find(|one| one.address == jump.ip());
        match known.map(|one| one.obstacle) {
            None => return Err("it leaves by a jump to another function"),
            Some(Some(obstacle)) => return Err(obstacle),
            Some(None) => {}
        }
        let is_conditional = jump.flow_control() == FlowControl::ConditionalBranch;
        let site = if jump.len() >= JUMP {
            if self.is_target(jump.ip() + 1, jump.next_ip()) {
                return Err("a branch leads into the jump by which it leaves");
            }
            Ok(self.site(When::Return, vec![*jump], 0))
        } else if is_conditional {
            // Where it is not taken, the function goes on behind it.
            Err(())
        } else {
            self.before_return(index, When::Return).map_err(drop)
        };
        let site = site.map_err(|()| "the jump by which it leaves has less room than 5 bytes")?;
        Ok(Site {
            is_tail: true,
            ..site
        })
    }
}
