//! Events made inside the kernel: BPF calls a function in a timed loop (`bpf/driver.bpf.c`).

use libbpf_rs::{
    KprobeMultiOpts, ProgramMut,
    skel::{OpenSkel as _, SkelBuilder as _},
};

use super::{Ask, Attach, Attached, Body, Driven, Driver, Events, Probe};
use crate::{
    error::{Error, Result},
    object::Owned,
    skel::driver::{DriverSkel, DriverSkelBuilder, types},
    timing::{self, Loop, Request},
};

crate::timing_area!(types::bss);

/// A driver that runs in the kernel.
pub(super) struct Kernel {
    driver: Driver,
    looping: Loop,
    skeleton: Owned<DriverSkel<'static>>,
}

impl Kernel {
    pub(super) fn load(driver: Driver) -> Result<Self> {
        let looping = Loop::probe()?;
        let name = format!("{}{}", program(driver), looping.suffix());
        let skeleton = Owned::new("driver", |storage| {
            let mut open = DriverSkelBuilder::default().open(storage)?;
            for mut program in open.open_object_mut().progs_mut() {
                let chosen = program.name() == name.as_str();
                program.set_autoload(chosen);
            }
            open.load()
        })?;
        Ok(Kernel {
            driver,
            looping,
            skeleton,
        })
    }
}

fn program(driver: Driver) -> &'static str {
    match driver {
        Driver::Kfunc => "drive_kfunc",
        Driver::Printk => "drive_printk",
        Driver::SysBpf => "drive_sys_bpf",
        _ => "drive_helper",
    }
}

impl Events for Kernel {
    fn attach(&mut self, probe: &mut Probe, body: Body) -> Result<Box<dyn Attached>> {
        let attach = probe.attach();
        let program = probe.program(body)?;
        let function = self.driver.function().unwrap_or_default();
        let tracepoint = self.driver.tracepoint().unwrap_or_default();
        let link = match attach {
            Attach::Kprobe => program.attach_kprobe(false, function),
            Attach::Kretprobe => program.attach_kprobe(true, function),
            Attach::KprobeMulti => multi(&program, function, |_| {}),
            Attach::KretprobeMulti => multi(&program, function, |options| options.retprobe = true),
            Attach::Fentry | Attach::Fexit | Attach::Fsession => program.attach_trace(),
            Attach::FmodRet | Attach::FmodRetSecurity => program.attach_trace(),
            Attach::TpBtf | Attach::TpBtfPrintk => program.attach_trace(),
            Attach::RawTp | Attach::RawTpPrintk => program.attach_raw_tracepoint(tracepoint),
            Attach::Lsm => program.attach_lsm(),
            _ => {
                return Err(Error::Stranger {
                    attach,
                    driver: self.driver,
                });
            }
        };
        match link {
            Ok(link) => Ok(Box::new(link)),
            Err(source) => Err(Error::Attach {
                what: attach.name().to_owned(),
                action: "attaching it",
                source,
            }),
        }
    }

    fn batch(&mut self, ask: &Ask) -> Result<Driven> {
        let skeleton = &mut *self.skeleton;
        let programs = &skeleton.progs;
        let program: &ProgramMut<'_> = match (self.driver, self.looping) {
            (Driver::Kfunc, Loop::CanLoop) => &programs.drive_kfunc,
            (Driver::Kfunc, Loop::BpfLoop) => &programs.drive_kfunc__bpf_loop,
            (Driver::Printk, Loop::CanLoop) => &programs.drive_printk,
            (Driver::Printk, Loop::BpfLoop) => &programs.drive_printk__bpf_loop,
            (Driver::SysBpf, Loop::CanLoop) => &programs.drive_sys_bpf,
            (Driver::SysBpf, Loop::BpfLoop) => &programs.drive_sys_bpf__bpf_loop,
            (_, Loop::CanLoop) => &programs.drive_helper,
            (_, Loop::BpfLoop) => &programs.drive_helper__bpf_loop,
        };
        let Some(area) = skeleton.maps.bss_data.as_deref_mut() else {
            return Err(Error::NoArea { object: "driver" });
        };
        let request = Request {
            ops: ask.events,
            resets: 1,
            cpus: &[ask.cpu],
            after_tick: ask.after_tick,
        };
        let seen = timing::batch(&program.into(), area, &request, &[Vec::new()])?.remove(0);
        Ok(Driven {
            events: seen.ops,
            made: seen.ops,
            elapsed_ns: seen.elapsed_ns(),
            ticks: seen.ticks,
            waits: seen.waits,
        })
    }
}

fn multi(
    program: &ProgramMut<'_>,
    function: &str,
    set: impl FnOnce(&mut KprobeMultiOpts),
) -> libbpf_rs::Result<libbpf_rs::Link> {
    let mut options = KprobeMultiOpts {
        symbols: vec![function.to_owned()],
        ..Default::default()
    };
    set(&mut options);
    program.attach_kprobe_multi_with_opts(options)
}
