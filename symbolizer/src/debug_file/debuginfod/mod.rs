//! A client of debuginfod servers: files by build ID over HTTP, kept where elfutils' client keeps them.
//!
//! Transfers are curl's: it has the host's certificates, proxies and name services, none of which a static program has, and
//! what a server sends is parsed in a process of its own. What comes is believed only when its build ID is right.

mod client;
mod settings;
mod transfer;

pub use client::{Client, ClientError, Step, Watch};
pub use settings::Settings;
