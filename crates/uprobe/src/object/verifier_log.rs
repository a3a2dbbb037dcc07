//! The verifier's log, shortened to what a person needs: the source line, the instruction, and the reason.

/// The lines at the end of a log that say why a program was rejected.
///
/// The log has each instruction with the state of registers behind it, source lines that begin with `;`, the reason,
/// and counts. All that comes after the last instruction is the reason.
pub fn shorten(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !is_noise(line)).collect();
    let instruction = lines.iter().rposition(|line| is_instruction(line));
    let Some(instruction) = instruction else {
        return lines.join("\n");
    };
    let source = lines[..instruction]
        .iter()
        .rfind(|line| line.starts_with("; "));
    let reason = &lines[instruction + 1..];
    let mut shortened: Vec<&str> = source.copied().into_iter().collect();
    shortened.push(without_state(lines[instruction]));
    // Some instructions show the state before them, and some reasons come with source lines of their own.
    shortened.extend(reason.iter().filter(|line| !line.starts_with(';')));
    shortened.join("\n")
}

/// `12: (79) r1 = *(u64 *)(r1 +0)`, or with a state behind it.
fn is_instruction(line: &str) -> bool {
    let Some((number, rest)) = line.split_once(": (") else {
        return false;
    };
    let is_code = rest
        .get(..2)
        .is_some_and(|code| u8::from_str_radix(code, 16).is_ok());
    is_code && number.parse::<u32>().is_ok()
}

fn without_state(line: &str) -> &str {
    line.split_once(" ;")
        .map_or(line, |(line, _)| line)
        .trim_end()
}

/// Counts, and states of registers.
fn is_noise(line: &str) -> bool {
    let is_state = line
        .split_once(": ")
        .is_some_and(|(number, rest)| number.parse::<u32>().is_ok() && rest.starts_with('R'));
    is_state
        || line.trim().is_empty()
        || line.starts_with("processed ")
        || line.starts_with("verification time")
        || line.starts_with("stack depth")
        || line.starts_with("mark_precise:")
        || line.starts_with("from ")
        || line.starts_with("func#")
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn a_bad_access_keeps_source_instruction_and_reason() {
        let log = "\
func#0 @0
0: R1=ctx() R10=fp0
; int probe(struct pt_regs *ctx) @ probe.bpf.c:7
0: (b7) r2 = 0                        ; R2_w=0
; return *(int *)0; @ probe.bpf.c:9
1: (61) r0 = *(u32 *)(r2 +0)
R2 invalid mem access 'scalar'
processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0
";
        assert_eq!(
            shorten(log),
            "; return *(int *)0; @ probe.bpf.c:9\n\
             1: (61) r0 = *(u32 *)(r2 +0)\n\
             R2 invalid mem access 'scalar'"
        );
    }

    #[test]
    fn a_log_without_instructions_stays() {
        let log = "unreachable insn 4\nprocessed 0 insns (limit 1000000)\n";
        assert_eq!(shorten(log), "unreachable insn 4");
    }

    #[test]
    fn states_before_instructions_are_dropped() {
        let log = "\
5: R0_w=scalar() R10=fp0
5: (85) call bpf_perf_event_output#25
program of this type cannot use helper bpf_perf_event_output#25
";
        assert_eq!(
            shorten(log),
            "5: (85) call bpf_perf_event_output#25\n\
             program of this type cannot use helper bpf_perf_event_output#25"
        );
    }
}
