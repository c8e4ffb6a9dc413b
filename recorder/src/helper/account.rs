//! What the helper did not answer, for people.

use std::fmt::{self, Display, Formatter};

/// What was not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Requests that took too long.
    pub(crate) hung: u64,
    /// Requests that were not made since their like had hung.
    pub(crate) withheld: u64,
    /// Requests at which the worker ended.
    pub(crate) crashed: u64,
    /// Why there is no helper any more.
    pub(crate) lost: Option<String>,
}

impl Display for Account {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.hung, "took too long"),
            (self.withheld, "not asked since such hung"),
            (self.crashed, "crashed the reader"),
        ];
        let told = counts.iter().filter(|(count, _)| *count > 0);
        let mut told: Vec<_> = told
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !told.is_empty() {
            told.insert(0, "questions about processes or files".to_owned());
        }
        if let Some(reason) = &self.lost {
            told.push(format!("the helper process is gone: {reason}"));
        }
        write!(f, "{}", told.join(", ").replacen("files, ", "files: ", 1))
    }
}
