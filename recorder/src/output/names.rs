//! Names of archives, and which of them go: `app.rawstack`, or `app.1.rawstack`, `app.2.rawstack`, … in turn.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rawstack_format::Error as FormatError;

use super::sink::Sink;

/// The names of a recording's archives.
#[derive(Debug)]
pub(crate) struct Names {
    /// As asked for.
    output: PathBuf,
    force: bool,
    /// `None`: there is one archive, under the very name that was asked for.
    numbers: Option<Numbers>,
}

#[derive(Debug)]
struct Numbers {
    next: u64,
    /// Archives that may be there at once, the one that is being written included.
    keep: Option<usize>,
    /// Those that are, the oldest first.
    own: VecDeque<PathBuf>,
}

impl Names {
    /// One archive of that name.
    pub(crate) fn single(output: &Path, force: bool) -> Self {
        Self {
            output: output.to_owned(),
            force,
            numbers: None,
        }
    }

    /// Numbered archives, of which the newest `keep` stay. Numbers go on behind those of earlier recordings, whose
    /// archives are left alone; with `force` they count to those that are kept, and go first.
    pub(crate) fn numbered(output: &Path, force: bool, keep: Option<u32>) -> Self {
        let earlier = numbered_like(output);
        let next = earlier.last().map_or(1, |(number, _)| number + 1);
        let own = earlier.into_iter().map(|(_, path)| path);
        Self {
            output: output.to_owned(),
            force,
            numbers: Some(Numbers {
                next,
                keep: keep.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX)),
                own: if force {
                    own.collect()
                } else {
                    VecDeque::new()
                },
            }),
        }
    }

    /// The name that would be taken next.
    pub(crate) fn next(&self) -> PathBuf {
        match &self.numbers {
            None => self.output.clone(),
            Some(numbers) => with_number(&self.output, numbers.next),
        }
    }

    /// Create the next archive. What is older than the newest ones to be kept goes first: it may be its room that is
    /// missing.
    pub(crate) fn create(&mut self) -> rawstack_format::Result<(PathBuf, Sink)> {
        let Some(numbers) = &mut self.numbers else {
            let sink = Sink::create(&self.output, self.force)?;
            return Ok((self.output.clone(), sink));
        };
        while numbers.keep.is_some_and(|keep| numbers.own.len() >= keep) {
            // One that is gone already, or that cannot be removed, is no reason not to record.
            if let Some(oldest) = numbers.own.pop_front() {
                fs::remove_file(oldest).ok();
            }
        }
        loop {
            let path = with_number(&self.output, numbers.next);
            match Sink::create(&path, false) {
                // Somebody made it meanwhile.
                Err(FormatError::Exists { .. } | FormatError::NotRegular { .. }) => {
                    numbers.next += 1;
                }
                result => {
                    let sink = result?;
                    numbers.next += 1;
                    numbers.own.push_back(path.clone());
                    return Ok((path, sink));
                }
            }
        }
    }

    /// Take back the archive created last: nothing could be written to it.
    pub(crate) fn take_back(&mut self, path: &Path) {
        if let Some(numbers) = &mut self.numbers {
            numbers.own.pop_back();
            numbers.next -= 1;
        }
        fs::remove_file(path).ok();
    }
}

/// `app.rawstack` and 7: `app.7.rawstack`.
fn with_number(output: &Path, number: u64) -> PathBuf {
    let mut name = OsString::from(output.file_stem().unwrap_or_default());
    name.push(format!(".{number}"));
    if let Some(extension) = output.extension() {
        name.push(".");
        name.push(extension);
    }
    output.with_file_name(name)
}

/// Archives in the same folder that are named as numbers of `output`, by number.
fn numbered_like(output: &Path) -> Vec<(u64, PathBuf)> {
    let folder = output
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut found: Vec<(u64, PathBuf)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let path = output.with_file_name(entry.file_name());
            let number = number_in(output, &path)?;
            Some((number, path))
        })
        .collect();
    found.sort_unstable();
    found
}

/// The number that makes `output` to `path`.
fn number_in(output: &Path, path: &Path) -> Option<u64> {
    let stem = output.file_stem()?.as_bytes();
    let number = path.file_name()?.as_bytes().strip_prefix(stem)?;
    let number = number.strip_prefix(b".")?;
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit());
    let number = std::str::from_utf8(number.get(..digits.count())?).ok()?;
    let number = number.parse().ok()?;
    (with_number(output, number) == path).then_some(number)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Check that a number goes before the extension and is found there again, and that other names have none.
    #[test]
    fn numbers() {
        let output = Path::new("/x/app.1.rawstack");
        assert_eq!(with_number(output, 20), Path::new("/x/app.1.20.rawstack"));
        assert_eq!(with_number(Path::new("app"), 3), Path::new("app.3"));
        for (name, number) in [
            ("app.1.20.rawstack", Some(20)),
            ("app.1.020.rawstack", None),
            ("app.1.rawstack", None),
            ("app.1.2.rawstack.gz", None),
            ("app.1.-2.rawstack", None),
            ("app.1.99999999999999999999.rawstack", None),
        ] {
            assert_eq!(
                number_in(output, &Path::new("/x").join(name)),
                number,
                "{name}"
            );
        }
    }

    /// Check that only the newest stay, that numbers go on behind an earlier recording's, and that those stay unless
    /// they are told to go.
    #[test]
    fn keeping() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.rawstack");
        let mut first = Names::numbered(&output, false, Some(2));
        for _ in 0..4 {
            first.create().unwrap();
        }
        assert_eq!(names(folder.path()), ["a.3.rawstack", "a.4.rawstack"]);
        let mut second = Names::numbered(&output, false, Some(1));
        second.create().unwrap();
        second.create().unwrap();
        let kept = ["a.3.rawstack", "a.4.rawstack", "a.6.rawstack"];
        assert_eq!(names(folder.path()), kept);
        let mut third = Names::numbered(&output, true, Some(3));
        let (path, _) = third.create().unwrap();
        let kept = ["a.4.rawstack", "a.6.rawstack", "a.7.rawstack"];
        assert_eq!(names(folder.path()), kept);
        third.take_back(&path);
        assert_eq!(third.create().unwrap().0, path);
    }

    /// Check that a name that somebody took meanwhile, by a file or a link, is passed over and left alone.
    #[test]
    fn taken() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.rawstack");
        let mut names = Names::numbered(&output, true, None);
        fs::write(folder.path().join("a.1.rawstack"), "theirs").unwrap();
        symlink("nowhere", folder.path().join("a.2.rawstack")).unwrap();
        let (path, _) = names.create().unwrap();
        assert_eq!(path, folder.path().join("a.3.rawstack"));
        let theirs = fs::read_to_string(folder.path().join("a.1.rawstack")).unwrap();
        assert_eq!(theirs, "theirs");
    }
}
