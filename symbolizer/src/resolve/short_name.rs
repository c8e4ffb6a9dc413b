//! Whether a name of the source and a linker's name are of one function: the latter holds the former in its own way.
//!
//! Compilers leave the linker's name out for functions that only one unit can see (gcc: templates over its lambdas), and
//! with `-gline-tables-only` everywhere. The symbol where such a function is entered has it, unless the linker folded
//! another function into that place.

/// Operators with the codes that stand for them (Itanium C++ ABI), longer ones first.
const OPERATORS: [(&[u8], &[&[u8]]); 44] = [
    (b"<=>", &[b"ss"]),
    (b"<<=", &[b"lS"]),
    (b">>=", &[b"rS"]),
    (b"->*", &[b"pm"]),
    (b"new[]", &[b"na"]),
    (b"delete[]", &[b"da"]),
    (b"()", &[b"cl"]),
    (b"[]", &[b"ix"]),
    (b"==", &[b"eq"]),
    (b"!=", &[b"ne"]),
    (b"<=", &[b"le"]),
    (b">=", &[b"ge"]),
    (b"<<", &[b"ls"]),
    (b">>", &[b"rs"]),
    (b"&&", &[b"aa"]),
    (b"||", &[b"oo"]),
    (b"++", &[b"pp"]),
    (b"--", &[b"mm"]),
    (b"->", &[b"pt"]),
    (b"+=", &[b"pL"]),
    (b"-=", &[b"mI"]),
    (b"*=", &[b"mL"]),
    (b"/=", &[b"dV"]),
    (b"%=", &[b"rM"]),
    (b"&=", &[b"aN"]),
    (b"|=", &[b"oR"]),
    (b"^=", &[b"eO"]),
    (b"new", &[b"nw"]),
    (b"delete", &[b"dl"]),
    (b"\"\"", &[b"li"]),
    (b"=", &[b"aS"]),
    (b"<", &[b"lt"]),
    (b">", &[b"gt"]),
    (b"+", &[b"pl", b"ps"]),
    (b"-", &[b"mi", b"ng"]),
    (b"*", &[b"ml", b"de"]),
    (b"/", &[b"dv"]),
    (b"%", &[b"rm"]),
    (b"!", &[b"nt"]),
    (b"&", &[b"an", b"ad"]),
    (b"|", &[b"or"]),
    (b"^", &[b"eo"]),
    (b"~", &[b"co"]),
    (b",", &[b"cm"]),
];
/// Ends of destructors.
const DESTRUCTORS: [&[u8]; 3] = [b"D0E", b"D1E", b"D2E"];

/// Whether the mangled name `linked` may be that of the function that the source calls `short`.
pub(super) fn is_short_for(short: &[u8], linked: &[u8]) -> bool {
    if !(linked.starts_with(b"_Z") || linked.starts_with(b"_R")) {
        return false;
    }
    if let Some(operator) = short.strip_prefix(b"operator")
        && !operator
            .first()
            .is_some_and(|&byte| byte == b'_' || byte.is_ascii_alphanumeric())
    {
        return holds_operator(operator.trim_ascii_start(), linked);
    }
    let (identifier, destructor) = match short.strip_prefix(b"~") {
        Some(class) => (class, true),
        None => (short, false),
    };
    if destructor && !DESTRUCTORS.iter().any(|end| holds(linked, end)) {
        return false;
    }
    let length = identifier.iter().position(|&byte| byte == b'<');
    let identifier = identifier
        .get(..length.unwrap_or(identifier.len()))
        .unwrap_or(identifier);
    // A few names of the standard library have abbreviations.
    let abbreviated = |name: &[u8], code: &[u8]| identifier == name && holds(linked, code);
    let encoded = [identifier.len().to_string().as_bytes(), identifier].concat();
    !identifier.is_empty()
        && (holds(linked, &encoded)
            || abbreviated(b"allocator", b"Sa")
            || abbreviated(b"basic_string", b"Ss"))
}

fn holds_operator(operator: &[u8], linked: &[u8]) -> bool {
    let known = OPERATORS
        .iter()
        .find(|(sign, _)| operator.starts_with(sign));
    match known {
        Some((_, codes)) => codes.iter().any(|code| holds(linked, code)),
        // A conversion, named after its type.
        None => holds(linked, b"cv"),
    }
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check functions, destructors, operators and conversions, and names of other functions.
    #[test]
    fn each_kind_of_name() {
        let same = |short: &str, linked: &str| is_short_for(short.as_bytes(), linked.as_bytes());
        assert!(same("fold<int>", "_ZN5mixed4foldIiEEvT_"));
        assert!(!same("fold", "_ZN5mixed5foldsIiEEvT_"));
        assert!(!same("main", "main"));
        assert!(same("~vector", "_ZNSt6vectorIiSaIiEED2Ev"));
        assert!(!same("~vector", "_ZNSt6vectorIiSaIiEE4pushEv"));
        assert!(same("operator()", "_ZNKUlvE_clEv"));
        assert!(same("operator==<char>", "_ZSteqIcEbRKSt4lessIT_E"));
        assert!(same("operator< <char>", "_ZStltIcEbRKSt4lessIT_E"));
        assert!(same("operator new", "_Znwm"));
        assert!(same("operator bool", "_ZNK1ScvbEv"));
        assert!(!same("operator==", "_ZN1S3fooEv"));
        assert!(same("operators", "_ZN1S9operatorsEv"));
        assert!(same("allocator", "_ZNSaIcEC1Ev"));
    }
}
