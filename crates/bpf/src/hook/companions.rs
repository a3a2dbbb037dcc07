//! Programs that belong together: an exit program needs what the entry program stored.

use super::{
    kind::HookKind,
    section::{Hook, function},
};

/// A chosen program and those that belong to it, in the order of `all`, which has it: the programs of its family (fentry,
/// fexit, fmod_ret, tp_btf and lsm need the kernel's types; all others need none), and those of the other family whose
/// function or tracepoint none of its own family names. Of several programs of one kind at one hook, which are made for
/// different kernels, it is the chosen one, or the first that the object's loader need not ask for. Programs without a
/// target are left out, except the chosen one.
pub fn companions(all: &[Hook], chosen: &Hook) -> Vec<Hook> {
    let family = chosen.kind.family();
    let own = all.iter().filter(|hook| hook.kind.family() == family);
    let named: Vec<Place> = own.flat_map(places).collect();
    let is_alternative = |hook: &Hook| {
        hook.kind.family() != family && places(hook).iter().any(|place| named.contains(place))
    };
    let belongs = |hook: &&Hook| {
        hook.program == chosen.program
            || hook.target.is_some() && !is_alternative(hook) && is_first(all, chosen, hook)
    };
    all.iter().filter(belongs).cloned().collect()
}

/// Returns true if no other program of the same kind at the same hook goes before this one.
fn is_first(all: &[Hook], chosen: &Hook, hook: &Hook) -> bool {
    let is_same = |other: &&Hook| other.kind == hook.kind && other.target == hook.target;
    if is_same(&chosen) {
        return false;
    }
    let mut same = all.iter().filter(is_same);
    let first = same.clone().find(|other| !other.optional);
    let first = first.or_else(|| same.next());
    first.is_some_and(|first| first.program == hook.program)
}

/// A function or tracepoint.
#[derive(PartialEq, Eq)]
struct Place {
    is_tracepoint: bool,
    name: String,
}

/// The places that a hook names: by its target, and by its section, which may only stand for the target.
fn places(hook: &Hook) -> Vec<Place> {
    let of_section = hook.section_target();
    let names = hook.target.as_deref().into_iter().chain(of_section);
    let place = |name: &str| {
        if hook.kind.is_tracepoint() {
            let (_, name) = name.rsplit_once([':', '/']).unwrap_or(("", name));
            return Some(Place {
                is_tracepoint: true,
                name: name.to_owned(),
            });
        }
        let name = match hook.kind {
            // The function that calls the hook.
            HookKind::Lsm => format!("security_{name}"),
            kind => function(kind, name)?,
        };
        Some(Place {
            is_tracepoint: false,
            name,
        })
    };
    names.filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(sections: &[&str]) -> Vec<Hook> {
        let hook = |(number, section): (usize, &&str)| {
            let plain = section.strip_prefix('?');
            let hook = Hook::parse(&format!("p{number}"), plain.unwrap_or(section));
            Hook {
                optional: plain.is_some(),
                ..hook.expect("a hook")
            }
        };
        sections.iter().enumerate().map(hook).collect()
    }

    fn chosen(sections: &[&str], number: usize) -> Vec<String> {
        let all = all(sections);
        let companions = companions(&all, &all[number]);
        companions.into_iter().map(|hook| hook.section).collect()
    }

    #[test]
    fn a_family_leaves_out_what_the_other_has_for_the_same_place() {
        let sections = [
            "kprobe/inet_listen",
            "kretprobe/inet_listen",
            "fexit/inet_listen",
            "tp_btf/sched_switch",
            "tracepoint/sched/sched_switch",
            "kprobe/other",
        ];
        assert_eq!(
            chosen(&sections, 0),
            [sections[0], sections[1], sections[4], sections[5]]
        );
        assert_eq!(
            chosen(&sections, 2),
            [sections[2], sections[3], sections[5]]
        );
    }

    #[test]
    fn hooks_of_security_modules_are_where_their_callers_are() {
        let sections = [
            "lsm/file_open",
            "kprobe/security_file_open",
            "kprobe/vfs_read",
        ];
        assert_eq!(chosen(&sections, 0), [sections[0], sections[2]]);
        assert_eq!(chosen(&sections, 1), [sections[1], sections[2]]);
    }

    #[test]
    fn of_several_at_one_hook_one_is_taken() {
        let sections = [
            "?kprobe/f",
            "kprobe/f",
            "kprobe/f",
            "?kprobe/g",
            "?kprobe/g",
            "kretprobe/f",
        ];
        assert_eq!(
            chosen(&sections, 5),
            ["kprobe/f", "kprobe/g", "kretprobe/f"]
        );
        let hooks = all(&sections);
        let names = |number: usize| {
            let companions = companions(&hooks, &hooks[number]);
            companions
                .into_iter()
                .map(|hook| hook.program)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(5), ["p1", "p3", "p5"]);
        assert_eq!(names(2), ["p2", "p3", "p5"]);
    }

    #[test]
    fn programs_without_a_target_stay_out_unless_chosen() {
        let sections = [
            "kprobe/dummy_file_read",
            "kretprobe/dummy_file_read",
            "kprobe/vfs_read",
        ];
        assert_eq!(chosen(&sections, 0), [sections[0], sections[2]]);
        // With targets, programs of the other family that stand for the same ones are left out.
        let mut hooks = all(&["kprobe/dummy_a", "kretprobe/dummy_a", "fentry/dummy_a"]);
        for hook in &mut hooks {
            *hook = hook.at("ext4_read").expect("a target");
        }
        assert_eq!(companions(&hooks, &hooks[0]).len(), 2);
        assert_eq!(companions(&hooks, &hooks[2]).len(), 1);
    }
}
