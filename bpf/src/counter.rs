//! One perf event with a program behind it. Knows not which recording it is for.
#![allow(
    unsafe_code,
    reason = "perf_event_open and BPF links on it have no safe wrapper"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;
use perf_event_open_sys::{bindings, ioctls};

use crate::error::{Error, Result};
use crate::perf_event::{online_cpus, open};
use crate::source::{Counter, Probe, Rate};

/// A perf event, stopped or running. It and its program's link end when it is dropped.
#[derive(Debug)]
pub struct PerfEvent {
    fd: OwnedFd,
    /// Ahead of the kernels that have such links the descriptor itself holds the program.
    link: Option<OwnedFd>,
    name: String,
    cpu: u32,
}

impl PerfEvent {
    /// Open `counter` on `cpu`, stopped and without a program.
    pub fn open(name: &str, counter: &Counter, cpu: u32) -> Result<Self> {
        let mut attr = bindings::perf_event_attr {
            type_: counter.pmu,
            config: counter.config[0],
            ..Default::default()
        };
        attr.__bindgen_anon_3.config1 = counter.config[1];
        attr.__bindgen_anon_4.config2 = counter.config[2];
        match counter.rate {
            Rate::Period(period) => attr.__bindgen_anon_1.sample_period = period,
            Rate::Frequency(hz) => {
                attr.__bindgen_anon_1.sample_freq = hz;
                attr.set_freq(1);
            }
        }
        attr.set_disabled(1);
        attr.set_exclude_idle(u64::from(counter.is_clock));
        attr.set_exclude_user(u64::from(counter.exclude_user));
        attr.set_exclude_kernel(u64::from(counter.exclude_kernel));
        attr.set_exclude_hv(u64::from(counter.exclude_kernel));
        Self::of(attr, name, cpu)
    }

    /// Open tracepoint `id`. Its program then runs on all CPUs, whichever this is for.
    pub(crate) fn tracepoint(name: &str, id: u64, cpu: u32) -> Result<Self> {
        let attr = bindings::perf_event_attr {
            type_: bindings::PERF_TYPE_TRACEPOINT,
            config: id,
            ..Default::default()
        };
        Self::of(attr, name, cpu)
    }

    /// Open a probe. Its program then runs on all CPUs, whichever this is for.
    pub(crate) fn probe(name: &str, probe: &Probe, cpu: u32) -> Result<Self> {
        let mut attr = bindings::perf_event_attr {
            type_: probe.pmu,
            config: probe.config,
            ..Default::default()
        };
        attr.__bindgen_anon_3.uprobe_path = probe.place.as_ptr() as u64;
        attr.__bindgen_anon_4.probe_offset = probe.offset;
        Self::of(attr, name, cpu)
    }

    fn of(mut attr: bindings::perf_event_attr, name: &str, cpu: u32) -> Result<Self> {
        Ok(Self {
            fd: open(&mut attr, cpu, name)?,
            link: None,
            name: name.to_owned(),
            cpu,
        })
    }

    /// The event that another process opened, started and gave away.
    pub fn from_descriptor(fd: OwnedFd, name: &str, cpu: u32) -> Self {
        Self {
            fd,
            link: None,
            name: name.to_owned(),
            cpu,
        }
    }

    /// Another descriptor of it, to give away.
    pub fn descriptor(&self) -> Result<OwnedFd> {
        self.fd.try_clone().map_err(Error::Descriptor)
    }

    /// Put a program behind it. With a cookie (5.15 and newer) the program can ask for that number.
    pub fn attach(&mut self, program: BorrowedFd<'_>, cookie: Option<u64>) -> Result<()> {
        let Some(cookie) = cookie else {
            let number = u32::try_from(program.as_raw_fd()).unwrap_or(u32::MAX);
            // SAFETY: both descriptors are open; the kernel takes a reference of its own.
            return self.check("attach to", unsafe {
                ioctls::SET_BPF(self.fd.as_raw_fd(), number)
            });
        };
        let mut options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
            ..Default::default()
        };
        options.__bindgen_anon_1.perf_event.bpf_cookie = cookie;
        let kind = libbpf_sys::BPF_PERF_EVENT;
        // SAFETY: both descriptors are open, options say their size and are only read.
        let link = unsafe {
            libbpf_sys::bpf_link_create(
                program.as_raw_fd(),
                self.fd.as_raw_fd(),
                kind,
                &raw const options,
            )
        };
        self.check("attach to", link)?;
        // SAFETY: the descriptor is new and nobody else's.
        self.link = Some(unsafe { OwnedFd::from_raw_fd(link) });
        Ok(())
    }

    /// Let a counter count. The first sample comes one period from now.
    pub fn enable(&self) -> Result<()> {
        // SAFETY: the descriptor is a perf event's.
        self.check("start", unsafe { ioctls::ENABLE(self.fd.as_raw_fd(), 0) })
    }

    /// Stop a counter.
    pub fn disable(&self) -> Result<()> {
        // SAFETY: the descriptor is a perf event's.
        self.check("stop", unsafe { ioctls::DISABLE(self.fd.as_raw_fd(), 0) })
    }

    /// The CPU that it is for.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    fn check(&self, action: &'static str, result: libc::c_int) -> Result<()> {
        if result < 0 {
            let error = io::Error::last_os_error();
            return Err(Error::perf(action, &self.name, self.cpu, error));
        }
        Ok(())
    }
}

/// Whether this machine has `counter`, and can sample it.
pub fn is_available(counter: &Counter) -> Result<bool> {
    let all = online_cpus()?;
    let cpu = counter.cpus.as_ref().and_then(|cpus| cpus.first());
    let cpu = cpu.or(all.first()).copied().unwrap_or(0);
    match PerfEvent::open("counter", counter, cpu) {
        Ok(_) => Ok(true),
        Err(Error::Perf { error, .. })
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EOPNOTSUPP)
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
