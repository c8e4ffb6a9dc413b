//! Files that tell of code that processes make, read by a worker of their own.

use super::connection::Connection;
use super::patience::Suspect;
use super::wire::{Answer, Request};
use crate::jit;

/// Who reads them.
#[derive(Debug)]
pub(crate) struct JitReader(Connection);

impl JitReader {
    /// One that asks over this connection.
    pub(crate) fn new(connection: Connection) -> Self {
        Self(connection)
    }
}

impl jit::Reader for JitReader {
    fn read(&mut self, request: &jit::Request) -> Result<jit::Piece, jit::Refusal> {
        let suspects = [Suspect::Process(request.pid)];
        let request = Request::JitFile(request.clone());
        match self.0.ask(&request, &suspects) {
            Some(Answer::JitFile(piece)) => piece,
            _ => Err(jit::Refusal::Slow),
        }
    }

    fn forget(&mut self, pid: u32) {
        _ = self.0.ask(&Request::ForgetJit(pid), &[]); // one that is gone has forgotten
    }
}
