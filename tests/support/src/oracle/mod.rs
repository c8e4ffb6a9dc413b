//! Second opinions: what others say of the same addresses.

pub mod gdb;
pub mod llvm;

/// What an oracle says of one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Functions there, innermost first; the last one is not inlined.
    pub functions: Vec<Function>,
}

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Name, demangled.
    pub name: String,
    /// Name as linked, where the oracle gives it; equal to `name` for C.
    pub linkage_name: Option<String>,
    /// Source file, as the debug information has it.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u64>,
}

/// A name without what compilers append to clones and parts of a function: `.constprop.0`, `.cold`, `.llvm.123`.
pub fn without_clone_suffix(name: &str) -> &str {
    // A name that starts with a dot is all suffix, and names of C++ and Rust have no dots when mangled.
    match name.find('.') {
        Some(at) if at > 0 && !name.contains(['(', '<', ' ']) => &name[..at],
        _ => name,
    }
}

/// The identifier at the end of a demangled name, without what readers of DWARF print in different ways: scopes,
/// parameters, template and generic arguments, the types of an `impl`.
pub fn identifier(name: &str) -> String {
    // What follows `operator` is brackets and signs.
    if let Some(at) = name.find("operator") {
        let starts = at == 0 || name[..at].ends_with([':', ' ']);
        if starts && !name[at..].contains("::") {
            return "operator".to_owned();
        }
    }
    let name = name.split(" [clone ").next().unwrap_or(name);
    let mut depth = 0_u32;
    let outside: String = name
        .replace("->", "")
        .chars()
        .filter(|c| {
            match c {
                '<' | '(' | '[' => depth += 1,
                '>' | ')' | ']' => depth = depth.saturating_sub(1),
                _ if depth == 0 => return true,
                _ => {}
            }
            false
        })
        .collect();
    let last = outside
        .rsplit("::")
        .find(|part| !part.trim().is_empty())
        .unwrap_or_default();
    let last = last.trim().trim_end_matches(" const");
    without_clone_suffix(last.rsplit(' ').next().unwrap_or(last)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that suffixes go and demangled names stay.
    #[test]
    fn clone_suffixes() {
        assert_eq!(without_clone_suffix("hash_text.constprop.0"), "hash_text");
        assert_eq!(without_clone_suffix("_ZN5mixed3f.llvm.77"), "_ZN5mixed3f");
        assert_eq!(without_clone_suffix("f(int, ...)"), "f(int, ...)");
        assert_eq!(without_clone_suffix(".plt"), ".plt");
    }

    /// Check that the ways in which C, C++ and Rust names are printed come down to one identifier.
    #[test]
    fn identifiers() {
        let same = [
            ("hash_text.constprop.0", "hash_text"),
            ("mixed::Circle::area(unsigned long) const", "area"),
            (
                "void std::__insertion_sort<long*, Iter<f(int)::{lambda(int)#1}> >(long*)",
                "__insertion_sort",
            ),
            ("__insertion_sort<long*>", "__insertion_sort"),
            (
                "mixed::Ring<unsigned long, 512>::fold<f()::{lambda()#1}>(unsigned long) const",
                "fold",
            ),
            ("<[u8] as core::fmt::Debug>::fmt", "fmt"),
            ("core::fmt::{impl#29}::fmt<u8>", "fmt"),
            ("std::io::<impl std::io::IoSlice>::new", "new"),
            ("f()::{lambda(int)#1}::operator()(int) const", "operator"),
            ("std::operator< <char>", "operator"),
            (
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
                "call_once{{vtable",
            ),
        ];
        for (name, expected) in same {
            assert_eq!(identifier(name), expected, "{name}");
        }
    }
}
