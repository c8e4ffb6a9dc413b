//! What stands in a chunk: which kind holds which record, in which version it is written, and which are read.

use rkyv::util::AlignedVec;

use crate::chunk::Kind;
use crate::error::Invalid;
use crate::record::Record;
use crate::v1;

/// The kind of chunk that holds `record`.
pub(crate) fn kind(record: &Record) -> Kind {
    match record {
        Record::Recording(_) => Kind::RECORDING,
        Record::KernelSymbols(_) => Kind::KERNEL_SYMBOLS,
        Record::KernelModules(_) => Kind::KERNEL_MODULES,
        Record::Vdso(_) => Kind::VDSO,
        Record::Batch(_) => Kind::BATCH,
        Record::JitMap(_) => Kind::JIT_MAP,
        Record::Runs(_) => Kind::RUNS,
        Record::StackCopies(_) => Kind::STACK_COPIES,
        Record::End(_) => Kind::END,
        Record::Part(_) => Kind::PART,
    }
}

/// The version in which every kind is written.
pub(crate) const VERSION: u8 = v1::VERSION;

/// Whether this version of `kind` can be read: all up to the one that is written.
pub(crate) fn is_known(kind: Kind, version: u8) -> bool {
    kind.name().is_some() && (v1::VERSION..=VERSION).contains(&version)
}

/// Turn `record` into the bytes of its root, in `raw`'s memory.
pub(crate) fn encode(record: &Record, raw: AlignedVec) -> Result<AlignedVec, Invalid> {
    v1::encode(record, raw)
}

/// Turn the bytes of a root of this kind and version into a record; `None` for what is not known.
pub(crate) fn decode(kind: Kind, version: u8, raw: &AlignedVec) -> Result<Option<Record>, Invalid> {
    match version {
        v1::VERSION => v1::decode(kind, raw),
        _ => Ok(None),
    }
}
