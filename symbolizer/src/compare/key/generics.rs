//! Generic parameters in names: one spelling for them, or none at all.

/// Operators with angles in their names, longer ones first.
const OPERATORS: [&str; 11] = [
    "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">",
];
const OPERATOR: &str = "operator";

/// `name` with generic parameters spelled one way: `f::<u8>` as `f<u8>`, `> >` as `>>`.
pub(super) fn one_spelling(name: &str) -> String {
    let mut out = name.replace("::<", "<");
    while out.contains("> >") {
        out = out.replace("> >", ">>");
    }
    // A path that starts with a type keeps its two colons: `x::<T as U>::f` is no generic parameter.
    if name.starts_with("::<") {
        name.to_owned()
    } else {
        out
    }
}

/// `<app::Foo>::bar` as `app::Foo::bar`, which is how the old mangling and debug information have it.
pub(super) fn unwrapped(name: &str) -> String {
    let wrapped = || {
        let inner = name.strip_prefix('<')?;
        let end = closing(inner)?;
        let (kind, rest) = (inner.get(..end)?, inner.get(end + 1..)?);
        let is_path = kind.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let is_plain =
            !kind.contains(" as ") && !kind.starts_with("dyn ") && !kind.starts_with("fn(");
        (is_path && is_plain && rest.starts_with("::")).then(|| format!("{kind}{rest}"))
    };
    wrapped().unwrap_or_else(|| name.to_owned())
}

/// Where the angle closes that was opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    let mut before = ' ';
    for (place, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(place);
        }
        before = c;
    }
    None
}

/// `name` without generic parameters; of a C++ template, whose arguments and result depend on them, the path alone.
pub(super) fn erased(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    let mut has_generics = false;
    while let Some(c) = rest.chars().next() {
        let is_start = !out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if let Some(operator) = operator(rest).filter(|_| is_start) {
            out.push_str(rest.get(..operator).unwrap_or_default());
            rest = rest.get(operator..).unwrap_or_default();
            continue;
        }
        // At the start of a path, or behind what is no name, an angle holds a type and not parameters.
        let is_parameter = out
            .trim_end()
            .ends_with(|c: char| c.is_alphanumeric() || "_})<>".contains(c));
        if c == '<'
            && is_parameter
            && let Some(end) = closing(rest.get(1..).unwrap_or_default())
        {
            has_generics = true;
            out.truncate(out.trim_end().len());
            rest = without_arguments(rest.get(end + 2..).unwrap_or_default());
            continue;
        }
        out.push(c);
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    if has_generics {
        without_signature(&out).to_owned()
    } else {
        out
    }
}

/// `(int*)::inner` as `::inner`: arguments of a template around a function depend on its parameters, too.
fn without_arguments(text: &str) -> &str {
    let mut depth = 0;
    let end = text
        .char_indices()
        .take_while(|_| text.starts_with('('))
        .find(|&(_, c)| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
    let behind = end.and_then(|(place, _)| text.get(place + 1..));
    behind
        .filter(|behind| behind.starts_with("::"))
        .unwrap_or(text)
}

/// The length of an operator's name at the start of `text`.
fn operator(text: &str) -> Option<usize> {
    let sign = text.strip_prefix(OPERATOR)?;
    let known = OPERATORS.iter().find(|known| sign.starts_with(**known))?;
    Some(OPERATOR.len() + known.len())
}

/// `void ns::f(int) const` as `ns::f`; a name that has no arguments stays.
pub fn without_signature(name: &str) -> &str {
    let end = name.trim_end_matches(" const").trim_end_matches([' ', '&']);
    let Some(open) = end.strip_suffix(')').and_then(opening) else {
        return name;
    };
    let path = end.get(..open).unwrap_or_default();
    // `(anonymous namespace)` and `operator()` are names.
    let is_operator = path.strip_suffix(OPERATOR);
    if path.is_empty()
        || path.starts_with('<')
        || is_operator.unwrap_or(path).ends_with("::")
        || path == OPERATOR
    {
        return name;
    }
    // The result stands before the last blank outside of all brackets; an operator's angles are none.
    let before = path
        .rfind(OPERATOR)
        .and_then(|place| path.get(..place))
        .unwrap_or(path);
    let mut depth = 0;
    let blank = before.char_indices().rfind(|&(_, c)| {
        depth += i32::from(")}]>".contains(c)) - i32::from("({[<".contains(c));
        c == ' ' && depth == 0
    });
    let start = blank.map_or(0, |(place, _)| place + 1);
    path.get(start..).unwrap_or(path)
}

/// Where the parenthesis opens that closes behind `text`.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.char_indices()
        .rev()
        .find(|&(_, c)| {
            depth += i32::from(c == ')') - i32::from(c == '(');
            depth == 0
        })
        .map(|(place, _)| place)
}
