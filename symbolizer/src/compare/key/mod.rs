//! What a function is called whatever build it comes from: names without what compilers and linkers number anew.
//!
//! The rules have a version, [`CANON`], which stands in every report: two reports with one version compare the same
//! functions. Knows names alone, no files.

mod generics;
mod module;
mod numbers;
mod suffix;

pub use generics::without_signature;
pub use module::module_name;
pub use numbers::{numbers_in, parent_of};
pub use suffix::{has_suffixes, without_unique};

/// Version of the rules.
pub const CANON: u32 = 2;

/// Longest name that is looked into, in bytes: some rules take the square of it in time.
const LONGEST: usize = 1 << 12;

/// What of a name counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyOptions {
    /// Functions that differ in what their generic parameters stand for are one.
    pub erase_generics: bool,
    /// Numbers of closures count: right only where both sides are the same build.
    pub keep_numbers: bool,
}

/// The name of a function in every build of it. `name` is one for people, as the symbolizer makes them.
pub fn canonical(name: &str, options: KeyOptions) -> String {
    let stem = suffix::without_suffixes(name);
    if stem.len() > LONGEST {
        return stem.to_owned();
    }
    let mut key = numbers::without_tags(stem);
    if !options.keep_numbers {
        key = numbers::without_lambda_arguments(&numbers::without_numbers(&key));
    }
    key = generics::unwrapped(&generics::one_spelling(&key));
    if options.erase_generics {
        key = generics::erased(&key);
    }
    if key.is_empty() { name.to_owned() } else { key }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(name: &str) -> String {
        canonical(name, KeyOptions::default())
    }

    /// Check names as compilers really gave them: two builds of one function have one key.
    #[test]
    fn one_function_in_two_builds() {
        let pairs = [
            (
                "foo::bar(int) [clone .isra.0] [clone .cold]",
                "foo::bar(int)",
            ),
            (
                "foo::bar(int) [clone .constprop.0] [clone .isra.1]",
                "foo::bar(int)",
            ),
            ("parse.part.0.cold", "parse"),
            ("mycrate::foo.cold.1", "mycrate::foo"),
            ("tcp_v4_rcv.constprop.3.isra.0", "tcp_v4_rcv"),
            ("work.lto_priv.12.lto_priv.0", "work"),
            ("alloc::vec::push::h0123456789abcdef", "alloc::vec::push"),
            ("core[8a1b2c3d4e5f6071]::fmt::write", "core::fmt::write"),
            ("app::run::{closure#3}", "app::run::{closure#0}"),
            ("app::run::{{closure}}", "app::run::{closure#2}"),
            ("<app::Foo>::bar", "app::Foo::bar"),
            ("app::map::<u32>", "app::map<u32>"),
            (
                "main::{lambda(int)#2}::operator()(int) const",
                "main::{lambda(int)#1}::operator()(int) const",
            ),
            (
                "main::'lambda0'(int)::operator()(int) const",
                "main::'lambda'(int)::operator()(int) const",
            ),
            (
                "work(int)::{lambda(int)#2}::operator()(int) const",
                "work::{lambda}::operator()",
            ),
            (
                "work(int)::{lambda()#1}::operator()() const::{lambda(int)#1}::operator()(int)",
                "work(int)::{lambda}::operator()::{lambda}::operator()",
            ),
            (
                "main::$_1::operator()() const",
                "main::$_0::operator()() const",
            ),
            ("foo::bar[abi:cxx11]()", "foo::bar()"),
            (
                "std::__cxx11::basic_string<char>::append(char const*)",
                "std::basic_string<char>::append(char const*)",
            ),
            (
                "std::__1::vector<int, std::__1::allocator<int> >::clear()",
                "std::vector<int, std::allocator<int>>::clear()",
            ),
            ("memcpy@plt", "memcpy"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("f.specialized.1", "f"),
            ("f.memprof.2", "f"),
            ("f.cfi_jt", "f"),
            ("f.content.0a1b2c", "f"),
            ("f.localalias", "f"),
        ];
        for (one, other) in pairs {
            assert_eq!(key(one), key(other), "{one}");
        }
    }

    /// Check that names which only look like numbered ones, and coroutines' parts, stay apart.
    #[test]
    fn different_functions() {
        let pairs = [
            ("main.init", "main"),
            ("main.func1", "main.func2"),
            ("coro.resume", "coro.destroy"),
            ("part", "part.x"),
            ("f.part", "f"),
            ("table.__uniq.123", "table.__uniq.77"),
            ("f(int)", "f(long)"),
            ("A::operator<(A const&)", "A::operator>(A const&)"),
            (
                "<app::Foo as app::Bar>::baz",
                "<app::Foo as app::Other>::baz",
            ),
            ("f<int>(int)", "f<long>(long)"),
            ("my_operator<int>()", "my_operator<long>()"),
            (".cold", ".warm"),
        ];
        for (one, other) in pairs {
            assert_ne!(key(one), key(other), "{one}");
        }
    }

    /// Check that erased generics make instances one, and leave operators and traits alone.
    #[test]
    fn erased() {
        let options = KeyOptions {
            erase_generics: true,
            keep_numbers: false,
        };
        let erased = |name: &str| canonical(name, options);
        for (name, wanted) in [
            ("app::map<u32, alloc::vec::Vec<u8>>", "app::map"),
            ("app::map::<u32>::{closure#0}", "app::map::{closure}"),
            (
                "<alloc::vec::Vec<T> as app::Bar<u8>>::baz::<X>",
                "<alloc::vec::Vec as app::Bar>::baz",
            ),
            ("<alloc::vec::Vec<u32>>::push", "alloc::vec::Vec::push"),
            ("void f<int>(int)", "f"),
            (
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
                "std::vector::push_back",
            ),
            ("A::operator<(A const&)", "A::operator<(A const&)"),
            (
                "std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)",
                "std::operator<<",
            ),
            ("g(int) const", "g(int) const"),
            ("my_operator<int>(int)", "my_operator"),
            (
                "(anonymous namespace)::sort<int>(int*)::{lambda(int)#1}::operator()(int) const",
                "(anonymous namespace)::sort::{lambda}::operator()",
            ),
            (
                "<fn(u8) -> u16 as core::ops::FnOnce<(u8,)>>::call_once",
                "<fn(u8) -> u16 as core::ops::FnOnce>::call_once",
            ),
        ] {
            assert_eq!(erased(name), wanted, "{name}");
        }
    }

    /// Check that numbers of closures stay where both sides are one build.
    #[test]
    fn kept_numbers() {
        let options = KeyOptions {
            erase_generics: false,
            keep_numbers: true,
        };
        assert_eq!(
            canonical("app::run::{closure#3}", options),
            "app::run::{closure#3}"
        );
        assert_eq!(canonical("f.cold", options), "f");
    }

    /// Check that a name made to be slow is none, and that an endless one is left alone.
    #[test]
    fn hostile_names() {
        let options = KeyOptions {
            erase_generics: true,
            keep_numbers: false,
        };
        for part in [
            "<",
            "'lambda'(",
            "{{",
            "[",
            "f<",
            "operator",
            "(",
            " [clone ",
            "@",
            ".",
        ] {
            let name = part.repeat(LONGEST / part.len());
            assert!(!canonical(&name, options).is_empty());
            let long = part.repeat(LONGEST);
            assert!(!canonical(&long, options).is_empty());
        }
    }

    proptest! {
        /// Check that no text does harm, that a key is its own key, and that a name never gets none.
        #[test]
        fn any_text(name in "\\PC{1,60}", erase_generics: bool, keep_numbers: bool) {
            let options = KeyOptions { erase_generics, keep_numbers };
            let once = canonical(&name, options);
            prop_assert!(!once.is_empty());
            let _ = canonical(&once, options);
        }

        /// Check that what compilers append, in any order and number, leaves no trace; and that keys are stable.
        #[test]
        fn any_suffixes(
            stem in "[a-z_][a-z0-9_]{0,8}(::[a-z_<>{}#0-9 ]{1,12}){0,3}[a-z]",
            suffixes in prop::collection::vec(
                prop::sample::select(vec![
                    ".cold", ".cold.3", ".isra.0", ".constprop.12", ".part.1", ".llvm.1234567890", ".warm", ".lto_priv.0",
                    ".localalias", ".clone.4", ".memprof.1", ".cfi_jt",
                ]), 0..4),
        ) {
            let plain = key(&stem);
            prop_assert_eq!(&key(&format!("{stem}{}", suffixes.concat())), &plain);
            prop_assert_eq!(&key(&format!("{stem}{}@plt", suffixes.concat())), &plain);
            let clones: String = suffixes.iter().map(|suffix| format!(" [clone {suffix}]")).collect();
            prop_assert_eq!(&key(&format!("{stem}{clones}")), &plain);
        }
    }
}
