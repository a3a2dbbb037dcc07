//! Programs of a command line for maps of programs: `MAP[SLOT]=PROGRAM`.

use bpfcost_bpf::program::{ObjectFile, ProgramSlot};

use super::InputError;

/// What these words say, of objects that must all have these maps and programs.
pub fn slots(words: &[String], objects: &[ObjectFile]) -> anyhow::Result<Vec<ProgramSlot>> {
    let mut slots = Vec::new();
    for word in words {
        let wrong = |why: String| InputError::Wrong(format!("--also {word}: {why}"));
        let slot = slot(word)
            .ok_or_else(|| wrong("write MAP[SLOT]=PROGRAM, e.g. next[0]=parse_udp".to_owned()))?;
        for object in objects {
            let maps = object.maps()?;
            let arrays = maps.iter().filter(|map| map.is_program_array);
            let names: Vec<&str> = arrays.map(|map| &*map.name).collect();
            if !names.contains(&slot.map.as_str()) {
                let others = match names.as_slice() {
                    [] => "It has no program arrays".to_owned(),
                    names => format!("Its program arrays: {}", names.join(", ")),
                };
                return Err(wrong(format!(
                    "there is no program array {} in {}\n  {others}",
                    slot.map,
                    object.path().display(),
                ))
                .into());
            }
            object.program(&slot.program)?;
        }
        slots.push(slot);
    }
    Ok(slots)
}

fn slot(word: &str) -> Option<ProgramSlot> {
    let (place, program) = word.split_once('=')?;
    let (map, slot) = place.strip_suffix(']')?.split_once('[')?;
    Some(ProgramSlot {
        map: map.to_owned(),
        slot: slot.parse().ok()?,
        program: program.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read() {
        let known = slot("next[7]=parse_udp").expect("a slot");
        assert_eq!(
            (&*known.map, known.slot, &*known.program),
            ("next", 7, "parse_udp")
        );
        for wrong in [
            "next=parse_udp",
            "next[x]=a",
            "next[0]",
            "next[0=a",
            "next0]=a",
        ] {
            assert_eq!(slot(wrong), None, "{wrong}");
        }
    }
}
