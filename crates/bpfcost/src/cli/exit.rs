//! Exit codes of the causes that only measuring has.

use std::error::Error;

use bpfcost_console::exit::refusal;
pub(super) use bpfcost_console::exit::{Exit, interrupted, lacking, sentence, usage};
use bpfcost_process::ChildFailed;
use bpfcost_program::InputError;
use bpfcost_target::{
    guest::{Failure, GuestError},
    kernel,
};

/// The exit code of an error.
pub(super) fn exit_of(error: &anyhow::Error) -> Exit {
    Exit::from_error(error, exit_of_cause)
}

/// The same error with a further line: what to do next, known only where it came up.
pub(super) fn with_advice(error: &anyhow::Error, advice: &str) -> anyhow::Error {
    refusal(exit_of(error), format!("{}\n  {advice}", sentence(error)))
}

fn exit_of_cause(cause: &(dyn Error + 'static)) -> Option<Exit> {
    if let Some(error) = cause.downcast_ref::<kernel::Error>() {
        return Some(match error {
            kernel::Error::Interrupted => Exit::Interrupted,
            kernel::Error::Input(_) => Exit::Usage,
            _ => Exit::Lacking,
        });
    }
    if let Some(error) = cause.downcast_ref::<bpfcost_workload::Error>() {
        return Some(match error {
            bpfcost_workload::Error::Server(_) | bpfcost_workload::Error::Client(_) => Exit::Failed,
            bpfcost_workload::Error::Definition(_) => Exit::Usage,
            bpfcost_workload::Error::Machine(_) => Exit::Lacking,
        });
    }
    if let Some(failure) = cause.downcast_ref::<Failure>() {
        return Some(Exit::known(failure.exit));
    }
    if let Some(error) = cause.downcast_ref::<bpfcost_bpf::Error>() {
        return Some(if error.is_input() {
            Exit::Usage
        } else if error.is_of_ended_process() {
            Exit::Failed
        } else {
            Exit::Lacking
        });
    }
    let of_type = [
        (cause.is::<GuestError>(), Exit::Lacking),
        (cause.is::<ChildFailed>(), Exit::Failed),
        (cause.is::<bpfcost_probe::WrongProbe>(), Exit::Usage),
        (cause.is::<InputError>(), Exit::Usage),
    ];
    let mut of_type = of_type.into_iter();
    of_type.find_map(|(is_it, exit)| is_it.then_some(exit))
}

#[cfg(test)]
mod tests {
    use bpfcost_console::exit::BY_PRECEDENCE;

    #[test]
    fn the_help_has_each_code_once() {
        let (_, codes) = crate::cli::AFTER_HELP
            .split_once("Exit codes:")
            .expect("exit codes");
        let numbers = codes.split_ascii_whitespace();
        let mut named: Vec<u8> = numbers.filter_map(|word| word.parse().ok()).collect();
        let mut all = BY_PRECEDENCE.map(|exit| exit as u8);
        named.sort_unstable();
        all.sort_unstable();
        assert_eq!(named, all);
    }
}
