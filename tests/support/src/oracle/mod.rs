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
    /// Name, as the oracle prints it.
    pub name: String,
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
}
