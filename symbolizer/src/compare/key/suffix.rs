//! What compilers and linkers append to a name when they copy, split or version a function.

/// Suffixes with whether a number must, may or must not follow.
const SUFFIXES: [(&str, Number); 16] = [
    (".llvm", Number::Must),
    (".lto_priv", Number::Must),
    (".isra", Number::May),
    (".constprop", Number::May),
    (".part", Number::Must),
    (".cold", Number::May),
    (".warm", Number::May),
    (".hot", Number::May),
    (".unlikely", Number::May),
    (".localalias", Number::May),
    (".clone", Number::Must),
    (".specialized", Number::Must),
    (".memprof", Number::Must),
    (".kcfi", Number::MustNot),
    (".cfi", Number::MustNot),
    (".cfi_jt", Number::MustNot),
];
/// How a demangler shows a suffix.
const CLONE: &str = " [clone ";
/// Bytes of a hash that a name of the old Rust mangling ends with.
const RUST_HASH: usize = 16;
const UNIQUE: &str = ".__uniq.";

#[derive(Clone, Copy, PartialEq)]
enum Number {
    Must,
    May,
    MustNot,
}

/// `name` without any of them; a name that would be empty stays.
///
/// Not all that stands behind a point goes: that would eat names of files and of Go's packages.
pub(super) fn without_suffixes(name: &str) -> &str {
    let mut left = name;
    while let Some(shorter) = without_last(left).filter(|shorter| !shorter.is_empty()) {
        left = shorter;
    }
    left
}

/// Whether something was appended to the name of a function: it is a part or a copy of one.
pub fn has_suffixes(name: &str) -> bool {
    without_suffixes(name).len() < name.len()
}

/// `name` without the number that sets apart functions of one name in several files (`-funique-internal-linkage-names`).
pub fn without_unique(name: &str) -> Option<&str> {
    let (stem, number) = name.rsplit_once(UNIQUE)?;
    (is_number(number) && !stem.is_empty()).then_some(stem)
}

fn without_last(name: &str) -> Option<&str> {
    if let Some(inner) = name.strip_suffix(']')
        && let Some((stem, clone)) = inner.rsplit_once(CLONE)
    {
        return is_clone(clone).then_some(stem);
    }
    if let Some(stem) = name.strip_suffix("@plt") {
        return Some(stem);
    }
    if let Some((stem, version)) = name.split_once("@") {
        let version = version.strip_prefix('@').unwrap_or(version);
        let is_version = version
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte));
        return (is_version && !version.is_empty()).then_some(stem);
    }
    if let Some((stem, hash)) = name.rsplit_once("::h")
        && hash.len() == RUST_HASH
        && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return Some(stem);
    }
    dotted(name)
}

/// Whether all of what a demangler put into one bracket is known.
fn is_clone(clone: &str) -> bool {
    let mut left = clone;
    while !left.is_empty() {
        match dotted(left) {
            Some(shorter) => left = shorter,
            None => return false,
        }
    }
    true
}

/// Take one suffix off the end.
fn dotted(name: &str) -> Option<&str> {
    let (stem, last) = name.rsplit_once('.')?;
    if is_number(last) {
        return named(stem, &[Number::Must, Number::May]);
    }
    if let Some(before) = stem.strip_suffix(".content")
        && last.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return Some(before);
    }
    named(name, &[Number::May, Number::MustNot])
}

/// Take a suffix off that is known with `wanted` for its number.
fn named<'n>(name: &'n str, wanted: &[Number]) -> Option<&'n str> {
    let (before, suffix) = name.split_at_checked(name.rfind('.')?)?;
    let is_known = |&(known, number): &(&str, Number)| known == suffix && wanted.contains(&number);
    SUFFIXES.iter().any(is_known).then_some(before)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check numbers that must, may and must not be there.
    #[test]
    fn numbers() {
        for (name, wanted) in [
            ("f.isra.0", "f"),
            ("f.isra", "f"),
            ("f.part.3", "f"),
            ("f.part", "f.part"),
            ("f.kcfi", "f"),
            ("f.kcfi.1", "f.kcfi.1"),
            ("f.0", "f.0"),
            ("f.llvm.x", "f.llvm.x"),
            ("f [clone .isra.0.cold]", "f"),
            ("f [clone .resume]", "f [clone .resume]"),
            ("f@VERS_1.2", "f"),
            ("user@host: x", "user@host: x"),
            ("::h0123456789abcdef", "::h0123456789abcdef"),
        ] {
            assert_eq!(without_suffixes(name), wanted, "{name}");
        }
        assert_eq!(without_unique("f.__uniq.12"), Some("f"));
        assert_eq!(without_unique("f.__uniq.x"), None);
    }
}
