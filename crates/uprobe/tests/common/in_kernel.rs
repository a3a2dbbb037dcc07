//! An object's programs as uprobes of the kernel, to compare with.

#![allow(dead_code, reason = "each test program uses a part of it")]

use crate::common::{Binary, Target};
use bpfcost_uprobe::object::load_quietly;
use libbpf_rs::{Link, Map, MapCore as _, MapFlags, Object, ObjectBuilder, UprobeOpts};

/// A loaded object, whose programs are attached as long as it lives.
pub(crate) struct InKernel {
    pub(crate) object: Object,
    _links: Vec<Link>,
}

impl InKernel {
    /// Attaches programs to the function `handle` of a process, in their order.
    pub(crate) fn attach(
        object: &[u8],
        programs: &[&str],
        cookie: u64,
        process: (&Binary, &Target),
    ) -> Self {
        Self::attach_to("handle", object, programs, cookie, process)
    }

    /// Attaches programs to any function of a process, in their order.
    pub(crate) fn attach_to(
        function: &str,
        object: &[u8],
        programs: &[&str],
        cookie: u64,
        (binary, process): (&Binary, &Target),
    ) -> Self {
        let open = ObjectBuilder::default().open_memory(object).unwrap();
        let object: Object = load_quietly(|| open.load().unwrap());
        let attach = |name: &&str| {
            let mut all = object.progs_mut();
            let program = all.find(|one| one.name() == *name).unwrap();
            let options = UprobeOpts {
                cookie,
                func_name: Some(function.to_owned()),
                ..UprobeOpts::default()
            };
            let link = program.attach_uprobe_with_opts(process.pid(), binary.path(), 0, options);
            link.unwrap()
        };
        let links = programs.iter().map(attach).collect();
        InKernel {
            object,
            _links: links,
        }
    }

    /// A map by its name, or by the end of it.
    pub(crate) fn map(&self, name: &str) -> Map<'_> {
        let mut maps = self.object.maps();
        let map = maps.find(|map| map.name().to_string_lossy().ends_with(name));
        map.unwrap()
    }

    /// The value of a key that is a number.
    pub(crate) fn value(&self, map: &str, key: u32) -> Vec<u8> {
        let value = self.map(map).lookup(&key.to_ne_bytes(), MapFlags::ANY);
        value.unwrap().unwrap()
    }
}
