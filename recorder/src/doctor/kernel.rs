//! The kernel itself: what it is, and whether it takes the recorder's programs.

use std::fs::File;

use rawstack_bpf::can_defer;
use rustix::system::uname;

use super::{Check, Verdict};

const BTF: &str = "/sys/kernel/btf/vmlinux";

pub(super) fn checks() -> Vec<Check> {
    let release = uname().release().to_string_lossy().into_owned();
    let deferral = can_defer();
    let version = match &deferral {
        Err(error @ rawstack_bpf::Error::TooOld(_)) => Verdict::Missing(error.to_string()),
        _ => Verdict::Works(release),
    };
    let deferred = match deferral {
        Ok(Ok(())) => {
            Verdict::Works("user stacks are taken on the return, page faults allowed".to_owned())
        }
        Ok(Err(reason)) => Verdict::Missing(format!("{reason}: user stacks are taken at the tick")),
        Err(error) => Verdict::Missing(error.to_string()),
    };
    vec![
        Check::needed("version", version),
        Check::needed("type information", type_information()),
        Check::needed("lockdown", lockdown()),
        Check::wanted("deferred capture", deferred),
    ]
}

fn type_information() -> Verdict {
    let why =
        |error| format!("{BTF}: {error}; the kernel must be built with CONFIG_DEBUG_INFO_BTF=y");
    Verdict::of(File::open(BTF).map(|_| ()).map_err(why), BTF)
}

fn lockdown() -> Verdict {
    match rawstack_bpf::lockdown() {
        Some(level) if level == "confidentiality" => Verdict::Missing(
            "no program may read the kernel's memory; boot with lockdown=integrity or without lockdown".to_owned(),
        ),
        Some(level) => Verdict::Works(level),
        None => Verdict::Works("none".to_owned()),
    }
}
