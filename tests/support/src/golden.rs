//! Golden files: what a command printed once and was found right.

use std::env;
use std::fs;
use std::path::Path;

/// Fail unless `actual` is what the file at `path` holds. With `UPDATE_GOLDEN=1` in the environment, write it there.
pub fn compare(path: impl AsRef<Path>, actual: &str) {
    let path = path.as_ref();
    if env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        write(path, actual);
        return;
    }
    let expected = fs::read_to_string(path).unwrap_or_else(|err| {
        panic!(
            "{}: {err}. UPDATE_GOLDEN=1 makes it from what is printed now",
            path.display()
        )
    });
    if expected != actual {
        panic!(
            "{} differs (UPDATE_GOLDEN=1 takes the new text)\n{}",
            path.display(),
            first_difference(&expected, actual)
        );
    }
}

fn write(path: &Path, actual: &str) {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(path, actual))
        .unwrap_or_else(|err| panic!("failed to write {}: {err}", path.display()));
}

/// The first line that differs, with its number, in both texts.
fn first_difference(expected: &str, actual: &str) -> String {
    let same = expected
        .lines()
        .zip(actual.lines())
        .take_while(|(a, b)| a == b)
        .count();
    let line = |text: &str| {
        text.lines()
            .nth(same)
            .map_or("(end of text)".to_owned(), str::to_owned)
    };
    format!(
        "line {}:\n- {}\n+ {}",
        same + 1,
        line(expected),
        line(actual)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the first differing line is told, also where one text ends.
    #[test]
    fn difference() {
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), "line 2:\n- b\n+ c");
        assert_eq!(
            first_difference("a\nb\n", "a\n"),
            "line 2:\n- b\n+ (end of text)"
        );
    }
}
