//! Linker names → names for people: Rust (legacy and v0) and C++. Bounded in length, depth and output.

use std::fmt::{self, Write};
use std::str;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

use crate::guard::guarded;
use crate::text::clean_bytes;

/// What stands behind the names of stubs.
pub(super) const STUB: &[u8] = b"@plt";
/// Longest mangled name that is tried, in bytes.
const MAX_MANGLED: usize = 1 << 16;
/// Longest name that is made of it, in bytes: substitutions can double it with every step.
const MAX_DEMANGLED: usize = 1 << 16;
/// Pieces that such a name is written in, empty ones too: the measure of its time. Within these limits no name was found
/// that takes longer than 10 ms.
const MAX_PIECES: usize = 1 << 17;
/// Depth of nested names; the worker threads have stacks that hold it (see [`STACK_SIZE`]).
const MAX_DEPTH: u32 = 160;
/// Stack that a thread needs which demangles, in bytes.
pub(super) const STACK_SIZE: usize = 32 << 20;

/// The name of `raw` for people, or `raw` itself made safe to show where it is not mangled or beyond the limits.
///
/// A stub is called as what it leads to, with `@plt` behind, as others do it.
pub(super) fn demangle(raw: &[u8]) -> String {
    let (raw, ending) = match raw.strip_suffix(STUB) {
        Some(function) => (function, "@plt"),
        None => (raw, ""),
    };
    let mut name = whole_name(raw);
    name.push_str(ending);
    name
}

fn whole_name(raw: &[u8]) -> String {
    guarded(|| demangled(raw))
        .flatten()
        .map_or_else(|| clean_bytes(raw), |name| clean_bytes(name.as_bytes()))
}

fn demangled(raw: &[u8]) -> Option<String> {
    if raw.len() > MAX_MANGLED {
        return None;
    }
    let text = str::from_utf8(raw).ok()?;
    // What the linker or compiler put behind a name (`.cold`, `.llvm.123`, `@@GLIBC_2.2`) is no part of it.
    if !(text.starts_with("_Z") || text.starts_with("_R") || text.starts_with("__Z")) {
        return None;
    }
    if let Ok(rust) = rustc_demangle::try_demangle(text) {
        let mut out = Bounded::default();
        return write!(out, "{rust:#}").is_ok().then_some(out.text);
    }
    cpp(text)
}

fn cpp(text: &str) -> Option<String> {
    // LLVM numbers the copies of local functions anew in every build; the name should not change with it.
    let text = text.split_once(".llvm.").map_or(text, |(name, _)| name);
    let text = text
        .strip_prefix('_')
        .filter(|rest| rest.starts_with("_Z"))
        .unwrap_or(text);
    let limits = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let symbol = Symbol::new_with_options(text, &limits).ok()?;
    let mut out = Bounded::default();
    let options = DemangleOptions::new().recursion_limit(MAX_DEPTH);
    symbol.structured_demangle(&mut out, &options).ok()?;
    // An empty pack leaves its comma behind.
    let name = out.text.replace(", >", ">").replace(", )", ")");
    (!name.is_empty()).then_some(name)
}

/// Text that refuses to grow, or to be written to, without end.
#[derive(Default)]
struct Bounded {
    text: String,
    pieces: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.pieces += 1;
        let length = self.text.len().saturating_add(text.len());
        if length > MAX_DEMANGLED || self.pieces > MAX_PIECES {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Check one name of each mangling, and that what is none stays.
    #[test]
    fn each_mangling() {
        assert_eq!(
            demangle(b"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(
            demangle(b"_RNvNtCs1234_7mycrate3foo3bar"),
            "mycrate::foo::bar"
        );
        assert_eq!(demangle(b"_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(
            demangle(b"_ZN3foo3barEi.cold"),
            "foo::bar(int) [clone .cold]"
        );
        assert_eq!(demangle(b"_ZN3foo3barEi.llvm.123"), "foo::bar(int)");
        assert_eq!(demangle(b"_Z1fI1AJEEvR1BIT_DpT0_E"), "void f<A>(B<A>&)");
        assert_eq!(demangle(b"_ZN3foo3barEi@plt"), "foo::bar(int)@plt");
        assert_eq!(demangle(b"main"), "main");
        assert_eq!(demangle(b"_ZN3fo"), "_ZN3fo");
        assert_eq!(demangle(b"bad\xff\x1bname"), "bad\u{fffd}\\u{1b}name");
    }

    /// Check that a name which doubles with every substitution, or nests without end, falls back to itself.
    #[test]
    fn hostile_names() {
        let nested = format!("_Z1f{}i", "P".repeat(50_000));
        let small_stack = thread::Builder::new().stack_size(STACK_SIZE);
        let demangled = small_stack
            .spawn(move || demangle(nested.as_bytes()))
            .unwrap()
            .join()
            .unwrap();
        assert!(demangled.starts_with("_Z1fPPP"));
        let mut doubling = String::from("_Z1fI1aIiiE");
        for step in 0..30 {
            doubling.push_str(&format!("1aIS{}_S{}_E", base36(step), base36(step)));
        }
        doubling.push_str("Evv");
        assert!(demangle(doubling.as_bytes()).len() <= MAX_DEMANGLED);
        let long =
            |start: &str, part: &str, end: &str| format!("{start}{}{end}", part.repeat(8_000));
        for name in [
            long("_ZN", "1a", "Ev"),
            long("_Z1fI", "i", "Evv"),
            long("_Z1f1a", "S_", ""),
            long("_Z1fIJEE", "DpT_", "v"),
            long("_Z1f", "1aI", "i"),
            long("_Z1fIX", "pl", "EEvv"),
            long("_ZZ", "Z", "1fvE"),
            long("_RINvC1a1b", "R", "uE"),
            long("_RNv", "N", "C1a1b"),
        ] {
            let made = name.clone();
            let small_stack = thread::Builder::new().stack_size(STACK_SIZE);
            let made = small_stack.spawn(move || demangle(made.as_bytes()));
            let made = made.unwrap().join().unwrap();
            // A name for people, or the raw one, which may be shown cut.
            assert!(!made.is_empty() && made.len() <= MAX_DEMANGLED, "{name}");
        }
        let stubs = "@plt".repeat(1 << 16);
        assert!(demangle(stubs.as_bytes()).starts_with("@plt@plt"));
    }

    fn base36(number: u32) -> String {
        if number == 0 {
            String::new()
        } else {
            char::from_digit(number - 1, 36)
                .unwrap()
                .to_uppercase()
                .to_string()
        }
    }
}
