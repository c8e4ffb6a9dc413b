//! What to do for a module that lacks debug information: the package that has it, as its distribution names it.

use crate::symbolized::ModuleSymbols;

/// Folders that belong to packages.
const PACKAGED: [&str; 5] = ["/usr/", "/lib", "/bin/", "/sbin/", "/opt/"];

/// A line for people, or nothing where there is nothing to be had: no file, or none missing.
pub(super) fn advice(module: &ModuleSymbols) -> Option<String> {
    let whole = module.files.iter().any(|file| file.dwarf);
    if whole || module.frames == 0 {
        return None;
    }
    let (os, release) = (&*module.host.0, &*module.host.1);
    if module.path == "[kernel]" {
        return Some(kernel(os, release));
    }
    let build_id = module.build_id.as_deref()?;
    if !PACKAGED
        .iter()
        .any(|folder| module.path.starts_with(folder))
    {
        return Some(
            "keep the file as it was linked, or its debug file, and name their folder with --symbol-dir"
                .to_owned(),
        );
    }
    let package = match family(os) {
        Family::Debian => format!("`find-dbgsym-packages {build_id}` names its package"),
        Family::Fedora => {
            let (folder, name) = build_id.split_at_checked(2)?;
            let file = format!("/usr/lib/debug/.build-id/{folder}/{name}.debug");
            format!("`dnf --enablerepo='*debug*' install {file}`")
        }
        Family::Suse => format!("`zypper install -C 'debuginfo(build-id)={build_id}'`"),
        Family::Other => "install its debug package".to_owned(),
    };
    Some(format!(
        "{package}; or --debuginfod asks the servers of DEBUGINFOD_URLS"
    ))
}

fn kernel(os: &str, release: &str) -> String {
    let release = if release.is_empty() {
        "RELEASE"
    } else {
        release
    };
    let package = match family(os) {
        Family::Debian if os.starts_with("Ubuntu") => format!("linux-image-{release}-dbgsym"),
        Family::Debian => format!("linux-image-{release}-dbg"),
        Family::Fedora => format!("kernel-debuginfo-{release}"),
        Family::Suse => "kernel-default-debuginfo".to_owned(),
        Family::Other => "the debug package of its kernel".to_owned(),
    };
    format!("lines and inlined functions: {package}, or a folder with its vmlinux (--symbol-dir)")
}

/// Distributions that share their tools.
#[derive(Clone, Copy)]
enum Family {
    Debian,
    Fedora,
    Suse,
    Other,
}

fn family(os: &str) -> Family {
    let is = |names: &[&str]| names.iter().any(|name| os.contains(name));
    if is(&["Debian", "Ubuntu", "Mint", "Pop!"]) {
        Family::Debian
    } else if is(&[
        "Fedora",
        "Red Hat",
        "CentOS",
        "Rocky",
        "AlmaLinux",
        "Amazon",
        "Oracle",
    ]) {
        Family::Fedora
    } else if is(&["SUSE"]) {
        Family::Suse
    } else {
        Family::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolized::FoundFile;

    fn module(path: &str, os: &str) -> ModuleSymbols {
        ModuleSymbols {
            path: path.to_owned(),
            build_id: Some("abcdef".to_owned()),
            frames: 1,
            host: (os.to_owned(), "6.1.0".to_owned()),
            ..ModuleSymbols::default()
        }
    }

    /// Check the advice for each family of distributions, for what is in no package, and where nothing is missing.
    #[test]
    fn families() {
        let of = |path: &str, os: &str| advice(&module(path, os)).unwrap();
        let libc = "/usr/lib/libc.so.6";
        assert!(of(libc, "Debian GNU/Linux 12").contains("find-dbgsym-packages abcdef"));
        assert!(
            of(libc, "Fedora Linux 41").contains("install /usr/lib/debug/.build-id/ab/cdef.debug")
        );
        assert!(of(libc, "openSUSE Leap").contains("debuginfo(build-id)=abcdef"));
        assert!(of(libc, "").contains("--debuginfod"));
        assert!(of("/srv/me/server", "Debian").contains("--symbol-dir"));
        assert!(of("[kernel]", "Ubuntu 24.04").contains("linux-image-6.1.0-dbgsym"));
        let mut whole = module(libc, "");
        whole.files.push(FoundFile {
            rule: "given",
            path: String::new(),
            dwarf: true,
            symtab: true,
        });
        assert_eq!(advice(&whole), None);
    }
}
