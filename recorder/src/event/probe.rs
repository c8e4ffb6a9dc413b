//! Probes: from a file and a name to the places where the kernel is to stop for a moment.

use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rawstack_bpf::Probe;

use super::Every;
use super::library;
use super::pmu::Pmus;
use super::suggest::did_you_mean;
use super::symbols::{Function, Image};
use crate::error::{Error, Result};
use crate::event_spec::{EventKind, Place};

/// `config` of the kernel's probe PMUs: on return.
const ON_RETURN: u64 = 1;
/// Where the file offset of a semaphore lies in `config`.
const SEMAPHORE_SHIFT: u32 = 32;
/// Places that one event may have.
const MAX_PLACES: usize = 1024;

/// The places of one event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// One each.
    pub(crate) probes: Vec<Probe>,
    /// What is worth telling.
    pub(crate) note: Option<String>,
}

/// What is looked for, for messages.
#[derive(Clone, Copy, Debug)]
struct Search<'a> {
    event: &'a str,
    every: Every,
}

/// Find the places of an event that is a probe.
pub(crate) fn find(event: &str, kind: &EventKind, every: Every) -> Result<Found> {
    let search = Search { event, every };
    match kind {
        EventKind::Kprobe(place) => search.kernel(place),
        EventKind::Uprobe {
            path,
            place,
            on_return,
        } => search.function(path, place, *on_return),
        EventKind::Usdt {
            path,
            provider,
            name,
        } => search.marker(path, provider, name),
        _ => Ok(Found::default()),
    }
}

impl Search<'_> {
    fn refuse<T>(&self, why: String, cure: &'static str) -> Result<T> {
        let event = self.event.to_owned();
        Err(Error::Event { event, why, cure })
    }

    fn pmu(&self, name: &str, option: &str) -> Result<u32> {
        match Pmus::default().kind(name) {
            Some(kind) => Ok(kind.kind),
            None => self.refuse(
                format!("this kernel has no {name}s (built without {option})"),
                "take another event or kernel",
            ),
        }
    }

    fn kernel(&self, place: &Place) -> Result<Found> {
        let Place::Symbol(symbol, offset) = place else {
            return self.refuse(
                "an address is no place for it".to_owned(),
                "give a symbol of the kernel",
            );
        };
        let probe = Probe {
            pmu: self.pmu("kprobe", "CONFIG_KPROBES and CONFIG_KPROBE_EVENTS")?,
            config: 0,
            place: self.c_string(symbol.as_bytes())?,
            offset: *offset,
            every: self.every.0,
            is_in_user: false,
            is_entry: false,
        };
        Ok(Found {
            probes: vec![probe],
            note: None,
        })
    }

    fn c_string(&self, bytes: &[u8]) -> Result<CString> {
        match CString::new(bytes) {
            Ok(text) => Ok(text),
            Err(_) => self.refuse("a name holds a zero byte".to_owned(), "give one without"),
        }
    }

    fn open(&self, path: &Path) -> Result<(PathBuf, Image)> {
        let Some(path) = library::find(path) else {
            return self.refuse(
                format!("{} is no file that is there", path.display()),
                "give its path, or a name on PATH or among the libraries",
            );
        };
        match Image::read(&path) {
            Some(image) => Ok((path, image)),
            None => self.refuse(
                format!("{} is no ELF file that can be read", path.display()),
                "give a program or a library",
            ),
        }
    }

    fn function(&self, path: &Path, place: &Place, on_return: bool) -> Result<Found> {
        let (path, image) = self.open(path)?;
        let offsets = match place {
            Place::Offset(offset) => vec![*offset],
            Place::Symbol(symbol, distance) => self.symbol(&path, &image, symbol, *distance)?,
        };
        let note = (offsets.len() > 1).then(|| {
            format!(
                "{}: {} functions have that name, all are probed",
                self.event,
                offsets.len()
            )
        });
        let config = if on_return { ON_RETURN } else { 0 };
        let probe = |offset| {
            let is_entry =
                !on_return && (image.is_entry(offset) || looks_like_entry(&path, offset));
            self.in_file(&path, offset, config, is_entry)
        };
        Ok(Found {
            probes: offsets.into_iter().map(probe).collect::<Result<_>>()?,
            note,
        })
    }

    fn in_file(&self, path: &Path, offset: u64, config: u64, is_entry: bool) -> Result<Probe> {
        Ok(Probe {
            pmu: self.pmu("uprobe", "CONFIG_UPROBES and CONFIG_UPROBE_EVENTS")?,
            config,
            place: self.c_string(path.as_os_str().as_bytes())?,
            offset,
            every: self.every.0,
            is_in_user: true,
            is_entry,
        })
    }

    /// File offsets of what a symbol means.
    fn symbol(&self, path: &Path, image: &Image, symbol: &str, distance: u64) -> Result<Vec<u64>> {
        let found = image.find(symbol);
        if found.is_empty() {
            return self.unknown(path, image, symbol);
        }
        if found.iter().any(|function| function.is_chooser) {
            let near = near(image, symbol);
            return self.refuse(
                format!(
                    "{symbol} only chooses one of several functions when a program starts{near}"
                ),
                "name the function that it chooses",
            );
        }
        if found.len() > MAX_PLACES {
            return self.refuse(
                format!("{} functions have that name", found.len()),
                "give an offset",
            );
        }
        let functions = found.into_iter();
        let offsets: Vec<u64> = functions
            .filter_map(|function| image.offset_of(function.address.checked_add(distance)?))
            .collect();
        if offsets.is_empty() {
            return self.refuse(
                format!("{symbol} lies in no part of the file"),
                "give an offset: 0x…",
            );
        }
        Ok(offsets)
    }

    fn unknown<T>(&self, path: &Path, image: &Image, symbol: &str) -> Result<T> {
        let path = path.display();
        if image.functions.is_empty() {
            return self.refuse(
                format!("{path} has no symbols"),
                "give the function's offset in the file: 0x…",
            );
        }
        self.refuse(
            format!("{path} has no function {symbol}{}", near(image, symbol)),
            "give a function of it, or an offset in the file: 0x…",
        )
    }

    fn marker(&self, path: &Path, provider: &str, name: &str) -> Result<Found> {
        let (path, image) = self.open(path)?;
        let (mut probes, mut places) = (Vec::new(), Vec::new());
        for marker in &image.markers {
            if marker.provider != provider || marker.name != name {
                continue;
            }
            let Some(offset) = image.offset_of(marker.address) else {
                continue;
            };
            let semaphore = match marker.semaphore {
                0 => Some(0),
                address => image.offset_of(address),
            };
            let Some(semaphore) = semaphore.filter(|offset| u32::try_from(*offset).is_ok()) else {
                return self.refuse(
                    "its semaphore lies in no part of the file that the kernel could count in"
                        .to_owned(),
                    "probe the function with uprobe: instead",
                );
            };
            if places.len() < MAX_PLACES && !places.contains(&offset) {
                places.push(offset);
                probes.push(self.in_file(&path, offset, semaphore << SEMAPHORE_SHIFT, false)?);
            }
        }
        if probes.is_empty() {
            let known = image.markers.iter();
            let known: Vec<_> = known
                .map(|it| format!("{}:{}", it.provider, it.name))
                .collect();
            let wanted = format!("{provider}:{name}");
            let near = did_you_mean(&wanted, known.iter().map(String::as_str));
            let why = format!("{} has no marker {wanted}{near}", path.display());
            return self.refuse(why, "give one that readelf -n shows");
        }
        let note = (probes.len() > 1).then(|| {
            format!(
                "{}: {} places have that marker, all are probed",
                self.event,
                probes.len()
            )
        });
        Ok(Found { probes, note })
    }
}

fn near(image: &Image, symbol: &str) -> String {
    let usable = image
        .functions
        .iter()
        .filter(|function| !function.is_chooser);
    let names = usable.map(|function: &Function| function.name.as_str());
    did_you_mean(symbol, names)
}

/// Whether the code says that a function begins here: where there are no symbols.
fn looks_like_entry(path: &Path, offset: u64) -> bool {
    let mut code = [0; 4];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut code, offset));
    read.is_ok() && begins_function(code)
}

/// As the kernel's own `is_uprobe_at_func_entry()`: `push %rbp` or `endbr64`.
#[cfg(target_arch = "x86_64")]
fn begins_function(code: [u8; 4]) -> bool {
    code[0] == 0x55 || code == [0xf3, 0x0f, 0x1e, 0xfa]
}

/// `paciasp`, `bti c`, or `stp x29, x30, [sp, #-N]!`.
#[cfg(target_arch = "aarch64")]
fn begins_function(code: [u8; 4]) -> bool {
    let word = u32::from_le_bytes(code);
    matches!(word, 0xd503_233f | 0xd503_245f) || word & 0xffc0_7fff == 0xa980_7bfd
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(kind: &EventKind) -> Result<Found> {
        find("event", kind, Every(1))
    }

    fn uprobe(symbol: &str) -> EventKind {
        EventKind::Uprobe {
            path: "/proc/self/exe".into(),
            place: Place::Symbol(symbol.to_owned(), 0),
            on_return: false,
        }
    }

    /// Check that a function of this program is found at its start, and that a wrong name is answered with a near one.
    #[test]
    fn own_functions() {
        let found = probes(&uprobe("main")).unwrap();
        assert_eq!(found.probes.len(), 1);
        assert!(found.probes[0].is_entry && found.note.is_none());
        let error = probes(&uprobe("mian")).unwrap_err().to_string();
        assert!(error.contains("did you mean main"), "{error}");
    }

    /// Check that what is no file, and what is no ELF file, is refused.
    #[test]
    fn no_elf() {
        for (path, why) in [("/nonexistent", "no file"), ("/etc/passwd", "no ELF file")] {
            let kind = EventKind::Usdt {
                path: path.into(),
                provider: "p".to_owned(),
                name: "n".to_owned(),
            };
            let error = probes(&kind).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
