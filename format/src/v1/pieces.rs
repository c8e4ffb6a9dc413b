//! Pieces of JIT maps.

use rkyv::{Archive, Serialize};

use crate::error::Invalid;
use crate::record::JitMap;

/// JIT map chunk.
#[derive(Archive, Serialize)]
pub(crate) struct JitMapRoot {
    pub(crate) time_ns: u64,
    pub(crate) position: u64,
    pub(crate) pid: u32,
    pub(crate) kind: u32,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn encode_jit_map(map: &JitMap) -> JitMapRoot {
    JitMapRoot {
        time_ns: map.time_ns,
        position: map.position,
        pid: map.pid,
        kind: map.kind.into(),
        bytes: map.bytes.clone(),
    }
}

pub(crate) fn decode_jit_map(a: &ArchivedJitMapRoot) -> Result<JitMap, Invalid> {
    Ok(JitMap {
        pid: a.pid.to_native(),
        kind: u8::try_from(a.kind.to_native()).map_err(|_| Invalid::Value)?,
        time_ns: a.time_ns.to_native(),
        position: a.position.to_native(),
        bytes: a.bytes.to_vec(),
    })
}
