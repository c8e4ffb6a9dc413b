//! What a module is called whatever build it comes from.

/// The name of the file at `path` without its folder, version and build number.
pub fn module_name(path: &str) -> String {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    if path.starts_with('[') {
        return path.to_owned();
    }
    let file = path.rsplit('/').next().unwrap_or(path);
    let (stem, ending) = match file.find(".so") {
        Some(place) if matches!(file.as_bytes().get(place + 3), None | Some(b'.')) => {
            (file.get(..place).unwrap_or(file), ".so")
        }
        _ => (file, ""),
    };
    let stem = without_build(stem);
    if stem.is_empty() {
        file.to_owned()
    } else {
        format!("{stem}{ending}")
    }
}

/// `foo-1.2.3` and `foo-0123456789abcdef` (as cargo makes them) as `foo`.
fn without_build(stem: &str) -> &str {
    let Some((name, last)) = stem.rsplit_once('-') else {
        return stem;
    };
    let is_version = last.starts_with(|c: char| c.is_ascii_digit())
        && last.contains('.')
        && last
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_hash = last.len() == 16 && last.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_version || is_hash { name } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check versions of libraries, cargo's hashes, deleted files and what is no file.
    #[test]
    fn each_kind() {
        for (path, wanted) in [
            ("/usr/lib/libssl.so.1.1", "libssl.so"),
            ("/lib/libc-2.31.so", "libc.so"),
            ("/t/debug/deps/app-0123456789abcdef", "app"),
            ("/x/libstd-0123456789abcdef.so", "libstd.so"),
            ("/opt/app (deleted)", "app"),
            ("[kernel]", "[kernel]"),
            ("/opt/x86-64", "x86-64"),
            ("/opt/my.sobig", "my.sobig"),
            ("", ""),
        ] {
            assert_eq!(module_name(path), wanted, "{path}");
        }
    }
}
