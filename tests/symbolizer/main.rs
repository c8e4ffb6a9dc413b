//! Tests of `rawstack` and its library, from archives and programs that the tests make themselves.

mod archive;
mod fixtures;
mod formats;
mod golden;
mod hostile;
mod invocation;
mod offline;
mod oracle;
mod rules;
mod run;
mod selection;
