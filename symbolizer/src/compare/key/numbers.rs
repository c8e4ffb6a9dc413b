//! Numbers and tags within a name that change although the function does not.

use super::generics::without_signature;

/// Namespaces that a library puts its own version into.
const INLINE_NAMESPACES: [&str; 4] = ["__cxx11::", "__1::", "__2::", "__ndk1::"];
const ABI: &str = "[abi:";
const LAMBDA: &str = "'lambda";
const LAMBDA_BRACE: &str = "{lambda";
const CALL: &str = "::operator()";
/// What stands behind the name of the function that a closure or lambda is in.
const CLOSURES: [&str; 3] = ["::{closure", "::{lambda", "::$_"];

/// `name` without tags of the ABI, versioned namespaces and disambiguators of crates.
pub(super) fn without_tags(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let is_start = !out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if let Some(tag) = rest.strip_prefix(ABI)
            && let Some((_, behind)) = tag.split_once(']')
        {
            rest = behind;
        } else if is_start
            && out.ends_with("::")
            && let Some(behind) = INLINE_NAMESPACES
                .iter()
                .find_map(|inline| rest.strip_prefix(inline))
        {
            rest = behind;
        } else if let Some(behind) = disambiguator(rest).filter(|_| !is_start) {
            rest = behind;
        } else {
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    out
}

/// What stands behind `[8a1b2c3d4e5f6071]`, which tells crates of one name apart.
fn disambiguator(text: &str) -> Option<&str> {
    let (hash, behind) = text.strip_prefix('[')?.split_once(']')?;
    let is_hash =
        (13..=17).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(behind)
}

/// `name` without numbers of closures, lambdas, implementations and unnamed types, which count what stands before them
/// in the source; and with one spelling of each.
pub(super) fn without_numbers(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some((shown, behind)) = braced(rest).or_else(|| clang_lambda(rest)) {
            out.push_str(&shown);
            rest = behind;
        } else if let Some(number) = rest.strip_prefix("$_") {
            out.push_str("$_");
            rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
        } else if let Some(number) = rest.strip_prefix('#')
            && let Some(behind) = number_before(number, '}')
        {
            rest = behind;
        } else {
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    out
}

/// `name` without the arguments of lambdas and of the functions that they stand in: where a compiler inlines one, it may tell
/// neither (`serve::{lambda}::operator()`).
pub(super) fn without_lambda_arguments(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, lambda)) = rest.split_once(LAMBDA_BRACE) {
        let behind = match lambda.strip_prefix('(') {
            Some(arguments) => behind_arguments(arguments),
            None => Some(lambda),
        };
        let Some(behind) = behind.and_then(|behind| behind.strip_prefix('}')) else {
            out.push_str(before);
            out.push_str(LAMBDA_BRACE);
            rest = lambda;
            continue;
        };
        match before.strip_suffix("::") {
            Some(parent) => out = out + without_signature(parent) + "::",
            None => out.push_str(before),
        }
        out.push_str("{lambda}");
        rest = behind;
        if let Some(call) = behind.strip_prefix(CALL) {
            out.push_str(CALL);
            let behind = call.strip_prefix('(').and_then(behind_arguments);
            rest = behind.map_or(call, |behind| {
                behind.strip_prefix(" const").unwrap_or(behind)
            });
        }
    }
    out + rest
}

/// What stands behind the parenthesis that was opened before `text`.
fn behind_arguments(text: &str) -> Option<&str> {
    let mut depth = 1;
    let end = text.char_indices().find(|&(_, c)| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    text.get(end?.0 + 1..)
}

/// The function in whose source a closure or lambda stands, by canonical names; none for what is neither.
pub fn parent_of(name: &str) -> Option<&str> {
    let ends = CLOSURES.iter().filter_map(|mark| name.rfind(mark));
    name.get(..ends.max()?)
}

/// The numbers of closures and lambdas in `name`, as they stand in the source from 0 on.
pub fn numbers_in(name: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for (mark, first) in [("#", 0), (LAMBDA, 1), ("$_", 0)] {
        for (place, _) in name.match_indices(mark) {
            let digits = name.get(place + mark.len()..).unwrap_or_default();
            let end = digits.find(|c: char| !c.is_ascii_digit());
            let digits = digits
                .get(..end.unwrap_or(digits.len()))
                .unwrap_or_default();
            // Clang's first lambda has no number, its second one has 0.
            let number = digits
                .parse()
                .map_or(0, |number: u32| number.saturating_add(first));
            numbers.push(number);
        }
    }
    numbers
}

/// `{{closure}}` as `{closure}`.
fn braced(text: &str) -> Option<(String, &str)> {
    let (inner, behind) = text.strip_prefix("{{")?.split_once("}}")?;
    (!inner.contains(['{', '}'])).then(|| (format!("{{{inner}}}"), behind))
}

/// `'lambda0'(int)` as `{lambda(int)}`.
fn clang_lambda(text: &str) -> Option<(String, &str)> {
    let behind = text
        .strip_prefix(LAMBDA)?
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .strip_prefix('\'')?;
    let arguments = behind.strip_prefix('(')?;
    let behind = behind_arguments(arguments)?;
    let arguments = arguments.strip_suffix(behind)?.strip_suffix(')')?;
    Some((format!("{{lambda({arguments})}}"), behind))
}

/// What begins with `end` behind a number.
fn number_before(text: &str, end: char) -> Option<&str> {
    let behind = text.trim_start_matches(|c: char| c.is_ascii_digit());
    (behind.len() < text.len() && behind.starts_with(end)).then_some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check nested closures, lambdas with functions among their arguments, and brackets that are no hash.
    #[test]
    fn nested() {
        assert_eq!(
            without_numbers("a::{closure#1}::{closure#12}"),
            "a::{closure}::{closure}"
        );
        assert_eq!(
            without_numbers("f()::'lambda1'(int (*)(char))::operator()"),
            "f()::{lambda(int (*)(char))}::operator()"
        );
        assert_eq!(without_numbers("{shim:vtable#0}"), "{shim:vtable}");
        assert_eq!(numbers_in("a::{closure#1}::{closure#12}"), [1, 12]);
        assert_eq!(numbers_in("f()::'lambda'()::operator()"), [0]);
        assert_eq!(numbers_in("f()::'lambda0'()::operator()"), [1]);
        assert_eq!(numbers_in("main::$_2::operator()"), [2]);
        assert_eq!(
            parent_of("a::b::{closure}::{closure}"),
            Some("a::b::{closure}")
        );
        assert_eq!(
            parent_of("main::{lambda(int)}::operator()(int) const"),
            Some("main")
        );
        assert_eq!(parent_of("a::b"), None);
        assert_eq!(without_numbers("#1 x"), "#1 x");
        assert_eq!(
            without_lambda_arguments("f(int)::{lambda(int (*)(char))}::operator()(int) const"),
            "f::{lambda}::operator()"
        );
        assert_eq!(
            without_lambda_arguments("g<f()::{lambda()}>(f()::{lambda()}, int)"),
            "g<f::{lambda}>(f::{lambda}, int)"
        );
        assert_eq!(
            without_lambda_arguments("a::(anonymous namespace)::{lambda()}::operator()<int>(int)"),
            "a::(anonymous namespace)::{lambda}::operator()<int>(int)"
        );
        assert_eq!(without_lambda_arguments("{lambda(int"), "{lambda(int");
        assert_eq!(without_tags("f(int [12])"), "f(int [12])");
        assert_eq!(without_tags("a::my__1::b"), "a::my__1::b");
        assert_eq!(
            without_tags("<[u8; 0123456789abcdef]>::x"),
            "<[u8; 0123456789abcdef]>::x"
        );
    }
}
