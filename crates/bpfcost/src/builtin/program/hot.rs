//! Traces a run of a program for its hot spots.

use anyhow::{Context as _, Result};
use bpfcost_bpf::program::{NativeProgram, Traceable};

use super::proof::Expected;
use bpfcost_model::{Fault, HotSpots, differs, prove};
use bpfcost_program::{InstructionTracer, KernelPlaces, Span, Watch, WatchedProgram, hot_spots};

/// The code of warnings about programs that have none.
pub(super) const NONE: &str = "no-hot-spots";

/// The longest run that is traced, in instructions, which are nanoseconds there: a second traces less than a million.
pub(super) const LONGEST: f64 = 1e7;

/// The name of a call of which the kernel does not tell the name.
const UNKNOWN: &str = "unknown";

/// Runs that are traced, of which the one in the middle counts.
const TRACED: usize = 3;

/// The hot spots of a program on a packet, of which its runs return and leave what is `expected`. `Err` is why it has
/// none.
pub(super) fn spots(
    tracer: &dyn InstructionTracer,
    native: &NativeProgram,
    cpu: u32,
    packet: &[u8],
    expected: &Expected,
) -> Result<Result<HotSpots, &'static str>, Fault> {
    let Some(program) = Traceable::load(native).context("loading it to be traced")? else {
        return Ok(Err("its object has no line numbers: compile it with -g"));
    };
    let mut codes = Vec::new();
    let watch = Watch {
        programs: vec![WatchedProgram {
            code: program.machine_code().clone(),
            spans: vec![Span::Program],
        }],
        kernel: KernelPlaces::default(),
        calls: false,
        window: None,
    };
    let trace = tracer.trace(&watch, &mut || -> Result<()> {
        for _ in 0..TRACED {
            codes.push(program.run(cpu, packet)?);
        }
        Ok(())
    })?;
    let detail = "they were to be traced";
    prove(differs("runs of the program", TRACED, codes.len(), detail))?;
    for code in codes {
        let detail = "a traced run of the program does something else";
        prove(differs("return code", expected.code, code, detail))?;
    }
    let detail = "the recorded instructions are not those of all runs";
    let traced = trace.programs.first().context("a trace of no program")?;
    prove(differs("traced runs", TRACED, traced.events.len(), detail))?;
    let line = |address| program.place(address).and_then(|place| place.line);
    let call = |address| {
        let place = program.place(address);
        place
            .and_then(|place| place.call)
            .unwrap_or_else(|| UNKNOWN.to_owned())
    };
    Ok(Ok(hot_spots(&traced.typical, line, call)))
}
