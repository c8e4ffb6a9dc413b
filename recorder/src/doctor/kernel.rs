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
        Check::needed("lockdown", lockdown(rawstack_bpf::lockdown())),
        Check::wanted("deferred capture", deferred),
    ]
}

fn type_information() -> Verdict {
    let why =
        |error| format!("{BTF}: {error}; the kernel must be built with CONFIG_DEBUG_INFO_BTF=y");
    Verdict::of(File::open(BTF).map(|_| ()).map_err(why), BTF)
}

/// The level, where the kernel has one.
fn lockdown(level: Option<String>) -> Verdict {
    match level {
        Some(level) if level == "confidentiality" => Verdict::Missing(
            "no program may read the kernel's memory; boot with lockdown=integrity or without lockdown".to_owned(),
        ),
        Some(level) => Verdict::Works(level),
        None => Verdict::Works("none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only the level that hides memory stands in the way.
    #[test]
    fn levels() {
        let of = |level: &str| lockdown(Some(level.to_owned()));
        assert_eq!(lockdown(None), Verdict::Works("none".to_owned()));
        assert_eq!(of("integrity"), Verdict::Works("integrity".to_owned()));
        assert!(matches!(of("confidentiality"), Verdict::Missing(_)));
    }
}
